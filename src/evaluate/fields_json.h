// Structs as JSON objects, for the worker protocol and for recordings. One list of fields a struct serves
// both directions; a struct with a list converts by nlohmann's rules: Json(value), json.get<Struct>().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "base/fields.h"
#include "candidates/config.h"
#include "evaluate/evaluation_step.h"
#include "formats/json.h"
#include "measure/policy.h"
#include "problem/problem.h"

namespace gemmtune {

GEMMTUNE_FIELDS(Policy, cache, warmup, iterations, sample_us, screening_samples, pool_limit_bytes,
                prefer_ratio, tie_band, unwritten_pass_factor, round_limit, seed, finalists, accuracy, init,
                launch, rotating_mb, objective, routing, routing_trace, team, parallel_pass, processor_time);

GEMMTUNE_FIELDS(RoutingTrace, name, experts, topk, ids);

GEMMTUNE_FIELDS(DeviceRequest, text, threads, isa_cap, module_folder, onednn_folders, kernel_cache_folder,
                rebuild_kernels, source_folder, compile_threads, pin_threads, serves, team,
                last_level_cache_mib, powercap_folder, opponent, library_baseline);

/// Without the functions, which are of the process that evaluates.
GEMMTUNE_FIELDS(InProcessOptions, policy, max_err_ratio, reference_threads, too_slow_factor, odd_strides,
                bit_classes, memory_limit_bytes, timing_lock, lock_owner, share, unwritten_on_step,
                unwritten_on_waited, unwritten_on_pause);

/// Without the files, which are of the machine that has them, and what follows from the version.
GEMMTUNE_FIELDS(Library, name, version, why, unwritten_path, unwritten_year, unwritten_passed_over);

/// Without the slot of the machine that it is in, and without its team, which a policy names.
GEMMTUNE_FIELDS(DeviceInfo, backend, name, model, gfx, cu_num, unwritten_bus_id, unwritten_team, libraries,
                unwritten_opponent, unwritten_opponent_text);

GEMMTUNE_FIELDS(Candidate, family, revision, config);

/// A struct whose fields are listed.
template <typename Struct>
concept HasFields = requires(Struct& object) {
  visit_fields(object, [](std::string_view, auto&) {});
};

template <HasFields Struct>
void to_json(Json& json, const Struct& object) {
  json = Json::object();
  visit_fields(object,
               [&json](std::string_view name, const auto& member) { json[std::string(name)] = member; });
}

/// Throws what the JSON library throws if a field is missing or of another type.
template <HasFields Struct>
void from_json(const Json& json, Struct& object) {
  visit_fields(object,
               [&json](std::string_view name, auto& member) { json.at(std::string(name)).get_to(member); });
}

void to_json(Json& json, CacheMode mode);
void from_json(const Json& json, CacheMode& mode);
void to_json(Json& json, AccuracyPolicy policy);
void from_json(const Json& json, AccuracyPolicy& policy);
void to_json(Json& json, Team team);
void from_json(const Json& json, Team& team);
void to_json(Json& json, LaunchMode mode);
void from_json(const Json& json, LaunchMode& mode);
void to_json(Json& json, Objective objective);
void from_json(const Json& json, Objective& objective);
void to_json(Json& json, RoutingKind kind);
void from_json(const Json& json, RoutingKind& kind);
/// A kind or null.
void to_json(Json& json, const std::optional<RoutingKind>& kind);
void from_json(const Json& json, std::optional<RoutingKind>& kind);
/// A trace or null.
void to_json(Json& json, const std::shared_ptr<const RoutingTrace>& trace);
void from_json(const Json& json, std::shared_ptr<const RoutingTrace>& trace);
void to_json(Json& json, InitType type);
void from_json(const Json& json, InitType& type);
void to_json(Json& json, const Config& config);
void from_json(const Json& json, Config& config);
void to_json(Json& json, const Problem& problem);
void from_json(const Json& json, Problem& problem);

}  // namespace gemmtune
