#include "evaluate/worker/worker_protocol.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "evaluate/outcome_json.h"

namespace gemmtune {
namespace {

using Json = nlohmann::json;

Json to_json(const Candidate& candidate) {
  return {{"family", candidate.family},
          {"revision", candidate.revision},
          {"config", candidate.config.settings()}};
}

Candidate candidate_in(const Json& json) {
  Candidate candidate;
  candidate.family = json.at("family");
  candidate.revision = json.at("revision");
  for (const auto& [key, value] : json.at("config").get<std::vector<std::pair<std::string, std::string>>>())
    candidate.config.set(key, value);
  return candidate;
}

/// Throws what the JSON library throws where the text is none of ours.
Problem problem_in(const Json& json) {
  auto problem = parse_problem(json.get<std::string>());
  if (!problem.ok()) throw Json::other_error::create(501, problem.message(), &json);
  return *problem;
}

Json to_json(const Policy& policy) {
  return {{"cache", static_cast<int>(policy.cache)},
          {"warmup", policy.warmup},
          {"iterations", policy.iterations},
          {"sample_microseconds", policy.sample_microseconds},
          {"screening_samples", policy.screening_samples},
          {"pool_limit_bytes", policy.pool_limit_bytes},
          {"prefer_ratio", policy.prefer_ratio},
          {"tie_band", policy.tie_band},
          {"round_limit", policy.round_limit},
          {"seed", policy.seed},
          {"finalists", policy.finalists}};
}

Policy policy_in(const Json& json) {
  Policy policy;
  policy.cache = static_cast<CacheMode>(json.at("cache").get<int>());
  policy.warmup = json.at("warmup");
  policy.iterations = json.at("iterations");
  policy.sample_microseconds = json.at("sample_microseconds");
  policy.screening_samples = json.at("screening_samples");
  policy.pool_limit_bytes = json.at("pool_limit_bytes");
  policy.prefer_ratio = json.at("prefer_ratio");
  policy.tie_band = json.at("tie_band");
  policy.round_limit = json.at("round_limit");
  policy.seed = json.at("seed");
  policy.finalists = json.at("finalists");
  return policy;
}

Json to_json(const InProcessOptions& options) {
  return {{"policy", to_json(options.policy)},
          {"max_err_ratio", options.max_err_ratio},
          {"reference_threads", options.reference_threads},
          {"too_slow_factor", options.too_slow_factor},
          {"timing_lock", options.timing_lock}};
}

InProcessOptions evaluation_in(const Json& json) {
  InProcessOptions options;
  options.policy = policy_in(json.at("policy"));
  options.max_err_ratio = json.at("max_err_ratio");
  options.reference_threads = json.at("reference_threads");
  options.too_slow_factor = json.at("too_slow_factor");
  options.timing_lock = json.at("timing_lock");
  return options;
}

Json to_json(const DeviceRequest& request) {
  return {{"text", request.text},
          {"threads", request.threads},
          {"isa_cap", request.isa_cap},
          {"module_folder", request.module_folder},
          {"kernel_cache_folder", request.kernel_cache_folder},
          {"rebuild_kernels", request.rebuild_kernels},
          {"pin_threads", request.pin_threads}};
}

DeviceRequest device_in(const Json& json) {
  DeviceRequest request;
  request.text = json.at("text");
  request.threads = json.at("threads");
  request.isa_cap = json.at("isa_cap");
  request.module_folder = json.at("module_folder");
  request.kernel_cache_folder = json.at("kernel_cache_folder");
  request.rebuild_kernels = json.at("rebuild_kernels");
  request.pin_threads = json.at("pin_threads");
  return request;
}

struct RequestPrinter {
  Json operator()(const OpenRequest& open) const {
    return {{"ask", "open"},
            {"backend", open.backend},
            {"device", to_json(open.device)},
            {"evaluation", to_json(open.evaluation)}};
  }
  Json operator()(const AnnounceRequest& announce) const {
    Json json = {{"ask", "announce"}, {"problem", print(announce.problem)}, {"candidates", Json::array()}};
    for (const Candidate& candidate : announce.candidates) json["candidates"].push_back(to_json(candidate));
    return json;
  }
  Json operator()(const ScreenRequest& screen) const {
    return {{"ask", "screen"},
            {"problem", print(screen.problem)},
            {"candidate", to_json(screen.candidate)},
            {"samples", screen.samples}};
  }
  Json operator()(const FinalsRequest& finals) const {
    Json json = {{"ask", "finals"}, {"problem", print(finals.problem)}, {"rounds", finals.rounds}};
    for (const Candidate& candidate : finals.candidates) json["candidates"].push_back(to_json(candidate));
    return json;
  }
  Json operator()(const NeighbourRequest& neighbour) const {
    return {{"ask", "neighbour"},
            {"problem", print(neighbour.problem)},
            {"candidate", to_json(neighbour.candidate)},
            {"m", neighbour.m}};
  }
};

WorkerRequest content_in(const Json& json) {
  const std::string ask = json.at("ask");
  if (ask == "open")
    return OpenRequest{json.at("backend"), device_in(json.at("device")),
                       evaluation_in(json.at("evaluation"))};
  const Problem problem = problem_in(json.at("problem"));
  if (ask == "screen") return ScreenRequest{problem, candidate_in(json.at("candidate")), json.at("samples")};
  if (ask == "neighbour")
    return NeighbourRequest{problem, candidate_in(json.at("candidate")), json.at("m").get<std::int64_t>()};
  if (ask == "announce") {
    AnnounceRequest announce{problem, {}};
    for (const Json& candidate : json.at("candidates"))
      announce.candidates.push_back(candidate_in(candidate));
    return announce;
  }
  FinalsRequest finals{problem, {}, json.at("rounds")};
  for (const Json& candidate : json.at("candidates")) finals.candidates.push_back(candidate_in(candidate));
  return finals;
}

Status not_understood(const std::exception& error) {
  return Status::internal("a message between tuner and worker was not understood: {}", error.what());
}

}  // namespace

std::string print_request(const NumberedRequest& request) {
  Json json = std::visit(RequestPrinter(), request.content);
  json["number"] = request.number;
  return dump_line(json);
}

Result<NumberedRequest> parse_request(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    return NumberedRequest{json.at("number"), content_in(json)};
  } catch (const Json::exception& error) {
    return not_understood(error);
  }
}

std::string print_reply(const WorkerReply& reply) {
  Json json = {{"number", reply.number}};
  if (!reply.status.ok()) {
    json["error"] = {{"code", static_cast<int>(reply.status.code())}, {"text", reply.status.message()}};
    return dump_line(json);
  }
  json["candidate_seconds"] = reply.candidate_seconds;
  json["result"] = to_json(reply.result);
  return dump_line(json);
}

Result<WorkerReply> parse_reply(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    WorkerReply reply;
    reply.number = json.at("number");
    if (json.contains("error")) {
      const Json& error = json["error"];
      reply.status = Status(static_cast<StatusCode>(error.at("code").get<int>()), error.at("text"));
      return reply;
    }
    reply.candidate_seconds = json.at("candidate_seconds");
    auto result = finals_from_json(json.at("result"));
    if (!result) return Status::internal("a worker's reply holds no result: {}", text.substr(0, 200));
    reply.result = std::move(*result);
    return reply;
  } catch (const Json::exception& error) {
    return not_understood(error);
  }
}

}  // namespace gemmtune
