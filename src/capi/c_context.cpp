// The C functions of contexts and of packed weights.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/file.h"
#include "capi/c_support.h"
#include "dispatch/weights.h"
#include "resolve/answer.h"
#include "resolve/errata.h"
#include "resolve/source_use.h"

namespace gemmtune::c {
namespace {

std::string text_or_empty(const char* text) { return text == nullptr ? std::string() : std::string(text); }

/// A LogSink whose context is the C handle.
void write_log(LogLevel level, std::string_view line, void* handle) {
  const auto* opened = static_cast<const gemmtune_context*>(handle);
  opened->log(opened->log_context, static_cast<int>(level), std::string(line).c_str());
}

gemmtune_status read_tuned_files(const gemmtune_context_options& given, TunedFileLists& lists) {
  if (given.tuned_file_count > 0 && given.tuned_files == nullptr)
    return fail_null("gemmtune_context_options", "tuned_files");
  std::set<OperationForm> seen;
  for (std::size_t i = 0; i < given.tuned_file_count; ++i) {
    const gemmtune_tuned_files& files = given.tuned_files[i];
    OperationForm operation = Operation::a16w16;
    if (const auto bad = read_operation(files.operation, operation); bad != GEMMTUNE_OK) return bad;
    if (!seen.insert(operation).second) {
      return fail(GEMMTUNE_INVALID_ARGUMENT,
                  fmt::format("tuned_files[{}]: a second entry of {}, expected one per operation", i,
                              to_string(operation)));
    }
    lists[operation] = text_or_empty(files.paths);
  }
  return GEMMTUNE_OK;
}

ContextOptions options_of(const gemmtune_context_options& given) {
  ContextOptions options;
  options.config_folder = text_or_empty(given.config_folder);
  options.backend = text_or_empty(given.backend);
  options.device = text_or_empty(given.device);
  options.threads = given.threads;
  options.strict_environment = given.strict_environment != 0;
  options.log_config = given.log_config != 0;
  options.verify_untuned = given.verify_untuned != 0;
  options.own_threads_only = given.own_threads_only != 0;
  options.capture = given.capture != 0;
  options.capture_folder = text_or_empty(given.capture_folder);
  options.parallel_for.function = given.parallel_for;
  options.parallel_for.context = given.parallel_for_context;
  return options;
}

gemmtune_status open_context(const gemmtune_context_options& given, gemmtune_context** opened) {
  if (given.threads < 0) {
    return fail(GEMMTUNE_INVALID_ARGUMENT, fmt::format("threads = {}, expected 0 or more", given.threads));
  }
  auto handle = std::make_unique<gemmtune_context>();
  ContextOptions options = options_of(given);
  if (const auto bad = read_tuned_files(given, options.tuned_files); bad != GEMMTUNE_OK) return bad;
  if (given.log != nullptr) {
    handle->log = given.log;
    handle->log_context = given.log_context;
    options.log = &write_log;
    options.log_context = handle.get();
  }
  auto context = Context::open(options);
  if (!context.ok()) return report(context.status());
  handle->context = std::move(context).value();
  if (const auto status = attach_online_tuning(handle.get()); status != GEMMTUNE_OK) return status;
  *opened = handle.release();
  return GEMMTUNE_OK;
}

/// Shipped tables that hold rows of other devices alone.
struct ShippedForOthers {
  const TableSource* first = nullptr;
  std::size_t files = 0;
  std::size_t rows = 0;

  /// False: the source is none of them.
  bool add(const TableSource& source) {
    if (!source.shipped || !source.state.ok() || !source.diagnostics.empty() || source.rows > 0) return false;
    if (files++ == 0) first = &source;
    rows += source.other_rows;
    return true;
  }
};

/// They have one folder, and one entry.
void visit_shipped_for_others(const ShippedForOthers& others, gemmtune_source_visitor visit,
                              void* visitor_context) {
  if (others.files == 0) return;
  const std::string folder = parent_folder(others.first->path);
  const std::string unused =
      fmt::format("{}: shipped tables for other devices are not used (files: {}, rows: {})", folder,
                  others.files, others.rows);
  gemmtune_source known{};
  known.size = sizeof known;
  known.operation = operation_to_c(others.first->operation);
  known.path = folder.c_str();
  known.devices = "";
  known.unused = unused.c_str();
  known.shipped = 1;
  visit(visitor_context, &known);
}

void visit_sources(const TableSet& tables, bool online, const Context& context, gemmtune_source_visitor visit,
                   void* visitor_context) {
  const auto uses = uses_of_sources(tables, context.device().info(), context.is_strict());
  ShippedForOthers others;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const TableSource& source = tables.sources[i];
    if (others.add(source)) continue;
    std::string devices;
    for (const auto& [device, rows] : uses[i].devices)
      devices += fmt::format("{}{}:{}", devices.empty() ? "" : ",", device, rows);
    gemmtune_source known{};
    known.size = sizeof known;
    known.operation = operation_to_c(source.operation);
    known.path = source.path.c_str();
    known.named = source.named ? 1 : 0;
    known.online = online ? 1 : 0;
    known.rows = source.rows;
    known.left_out = source.diagnostics.size();
    known.own_rows = uses[i].own;
    known.other_environment_rows = uses[i].other_environment;
    known.fewer_threads_rows = uses[i].fewer_threads;
    known.devices = devices.c_str();
    known.unused = uses[i].unused.c_str();
    known.shipped = source.shipped ? 1 : 0;
    visit(visitor_context, &known);
  }
  visit_shipped_for_others(others, visit, visitor_context);
}

std::atomic<gemmtune_context*> default_context{nullptr};

/// At the process's exit, or where the library is unloaded: nobody destroys the default context.
void end_default_context() {
  guarded([] {
    default_context.load()->context->set_miss_handler(nullptr, std::nullopt);
    return GEMMTUNE_OK;
  });
}

/// Runs `body(context, problem)` for a function about one weight.
template <typename Body>
gemmtune_status with_weight(const char* function, const gemmtune_context* context,
                            const gemmtune_problem* given, Body&& body) noexcept {
  if (context == nullptr) return fail_null(function, "context");
  Problem problem;
  if (const auto status = read_weight(given, problem); status != GEMMTUNE_OK) return status;
  return guarded([&]() -> gemmtune_status { return body(*context->context, problem); });
}

/// The packed layout that the fallback reads; plain if the operation's weights are not packed.
WeightLayout fallback_layout(const Device& device, Problem problem) {
  problem.m = 1;
  const auto fallback = usable_fallback(device, problem);
  if (!fallback.ok()) return WeightLayout::plain;
  return device.find_family(fallback->candidate.family)->packed_layout(problem).value_or(WeightLayout::plain);
}

gemmtune_status check_packed(const void* packed) {
  return check_alignment("packed", packed, workspace_alignment);
}

}  // namespace
}  // namespace gemmtune::c

namespace c = gemmtune::c;

extern "C" {

gemmtune_status gemmtune_context_create(const gemmtune_context_options* options, gemmtune_context** context) {
  if (context == nullptr) return c::fail_null("gemmtune_context_create", "context");
  *context = nullptr;
  gemmtune_context_options known{};
  if (options != nullptr) {
    if (const auto status = c::read_struct(options, known); status != GEMMTUNE_OK) return status;
  }
  return c::guarded([&] { return c::open_context(known, context); });
}

void gemmtune_context_destroy(gemmtune_context* context) {
  // The handler may still use the context while it comes to its end.
  if (context != nullptr) context->context->set_miss_handler(nullptr, std::nullopt);
  delete context;
}

gemmtune_status gemmtune_default_context(gemmtune_context** context) {
  static std::mutex mutex;
  std::atomic<gemmtune_context*>& shared = c::default_context;
  if (context == nullptr) return c::fail_null("gemmtune_default_context", "context");
  *context = shared.load(std::memory_order_acquire);
  if (*context != nullptr) return GEMMTUNE_OK;
  return c::guarded([&]() -> gemmtune_status {
    const std::lock_guard lock(mutex);
    *context = shared.load(std::memory_order_acquire);
    if (*context != nullptr) return GEMMTUNE_OK;
    const auto status = gemmtune_context_create(nullptr, context);
    if (status != GEMMTUNE_OK) return status;
    shared.store(*context, std::memory_order_release);
    // Without it (no memory) the miss handler is not told of the end.
    (void)std::atexit(c::end_default_context);
    return status;
  });
}

gemmtune_status gemmtune_context_reload(gemmtune_context* context) {
  if (context == nullptr) return c::fail_null("gemmtune_context_reload", "context");
  return c::guarded([&] { return c::report(context->context->reload()); });
}

gemmtune_status gemmtune_context_sources(const gemmtune_context* context, char* text, size_t capacity,
                                         size_t* needed) {
  if (context == nullptr) return c::fail_null("gemmtune_context_sources", "context");
  if (text == nullptr && capacity > 0) return c::fail_null("gemmtune_context_sources", "text");
  return c::guarded([&]() -> gemmtune_status {
    std::string all = context->context->tables()->describe();
    if (const auto online = context->context->online_rows()) all += "\n" + online->describe();
    if (const std::string shipped = context->context->shipped_tables().describe(); !shipped.empty())
      all += (all.empty() ? "" : "\n") + shipped;
    if (needed != nullptr) *needed = all.size() + 1;
    if (capacity == 0) return GEMMTUNE_OK;
    const std::size_t length = std::min(all.size(), capacity - 1);
    std::memcpy(text, all.data(), length);
    text[length] = '\0';
    return GEMMTUNE_OK;
  });
}

gemmtune_status gemmtune_context_visit_sources(const gemmtune_context* context, gemmtune_source_visitor visit,
                                               void* visitor_context) {
  if (context == nullptr) return c::fail_null("gemmtune_context_visit_sources", "context");
  if (visit == nullptr) return c::fail_null("gemmtune_context_visit_sources", "visit");
  return c::guarded([&] {
    const gemmtune::Context& opened = *context->context;
    c::visit_sources(*opened.tables(), false, opened, visit, visitor_context);
    if (const auto online = opened.online_rows())
      c::visit_sources(*online, true, opened, visit, visitor_context);
    c::visit_sources(opened.shipped_tables(), false, opened, visit, visitor_context);
    return GEMMTUNE_OK;
  });
}

gemmtune_status gemmtune_capture_flush(gemmtune_context* context) {
  if (context == nullptr) return c::fail_null("gemmtune_capture_flush", "context");
  return c::guarded([&] { return c::report(context->context->flush_capture()); });
}

gemmtune_status gemmtune_context_device(const gemmtune_context* context, gemmtune_device_info* info) {
  if (context == nullptr) return c::fail_null("gemmtune_context_device", "context");
  const gemmtune::DeviceInfo& device = context->context->device().info();
  gemmtune_device_info known{};
  known.backend = device.backend.c_str();
  known.name = device.name.c_str();
  known.model = device.model.c_str();
  known.gfx = device.gfx.c_str();
  known.cu_num = device.cu_num;
  known.team = device.team.c_str();
  return c::write_struct(known, info);
}

gemmtune_status gemmtune_context_type(const gemmtune_context* context, const char* word,
                                      gemmtune_type* type) {
  if (context == nullptr) return c::fail_null("gemmtune_context_type", "context");
  if (word == nullptr) return c::fail_null("gemmtune_context_type", "word");
  if (type == nullptr) return c::fail_null("gemmtune_context_type", "type");
  return c::guarded([&] {
    const auto meant = gemmtune::data_type_on(context->context->device().info().gfx, word);
    if (!meant)
      return c::report(gemmtune::Status::invalid("word is '{}', expected a type such as bf16 or fp8", word));
    *type = static_cast<gemmtune_type>(static_cast<int>(*meant) + 1);
    return GEMMTUNE_OK;
  });
}

gemmtune_status gemmtune_context_counters(const gemmtune_context* context, gemmtune_counters* counters) {
  if (context == nullptr) return c::fail_null("gemmtune_context_counters", "context");
  const gemmtune::CounterValues values = context->context->counters();
  gemmtune_counters known{};
  known.exact = values.by_match[GEMMTUNE_MATCH_EXACT];
  known.range = values.by_match[GEMMTUNE_MATCH_RANGE];
  known.fine = values.by_match[GEMMTUNE_MATCH_FINE];
  known.coarse = values.by_match[GEMMTUNE_MATCH_COARSE];
  known.untuned = values.by_match[GEMMTUNE_MATCH_UNTUNED];
  known.bucket = values.by_match[GEMMTUNE_MATCH_BUCKET];
  known.fewer_threads = values.by_match[GEMMTUNE_MATCH_FEWER_THREADS];
  known.other_environment = values.other_environment;
  known.plans_made = values.plans_made;
  known.invalid_rows = values.invalid_rows;
  return c::write_struct(known, counters);
}

gemmtune_status gemmtune_weight_layout(const gemmtune_context* context, const gemmtune_problem* problem,
                                       gemmtune_layout* layout) {
  if (layout == nullptr) return c::fail_null("gemmtune_weight_layout", "layout");
  return c::with_weight("gemmtune_weight_layout", context, problem,
                        [&](gemmtune::Context& opened, const gemmtune::Problem& asked) {
                          const auto tables = opened.tables();
                          auto known = gemmtune::WeightLayout::plain;
                          if (is_packed(asked))
                            known = gemmtune::tuned_weight_layout(
                                opened.device(), {*tables, nullptr, [&] { return &opened.shipped_tables(); }},
                                asked);
                          if (known == gemmtune::WeightLayout::plain && form_of(asked).packed)
                            known = c::fallback_layout(opened.device(), asked);
                          *layout = c::layout_to_c(known);
                          return GEMMTUNE_OK;
                        });
}

gemmtune_status gemmtune_packed_weight_bytes(const gemmtune_context* context, const gemmtune_problem* problem,
                                             gemmtune_layout layout, size_t* bytes) {
  if (bytes == nullptr) return c::fail_null("gemmtune_packed_weight_bytes", "bytes");
  gemmtune::WeightLayout target;
  if (const auto status = c::read_layout(layout, target); status != GEMMTUNE_OK) return status;
  return c::with_weight("gemmtune_packed_weight_bytes", context, problem,
                        [&](gemmtune::Context& opened, const gemmtune::Problem& asked) {
                          const auto size = gemmtune::packed_weight_bytes(opened.device(), asked, target);
                          if (!size.ok()) return c::report(size.status());
                          *bytes = *size;
                          return GEMMTUNE_OK;
                        });
}

gemmtune_status gemmtune_pack_weight(const gemmtune_context* context, const gemmtune_problem* problem,
                                     gemmtune_layout layout, const void* plain, void* packed) {
  if (plain == nullptr) return c::fail_null("gemmtune_pack_weight", "plain");
  if (packed == nullptr) return c::fail_null("gemmtune_pack_weight", "packed");
  if (const auto status = c::check_packed(packed); status != GEMMTUNE_OK) return status;
  gemmtune::WeightLayout target;
  if (const auto status = c::read_layout(layout, target); status != GEMMTUNE_OK) return status;
  return c::with_weight(
      "gemmtune_pack_weight", context, problem,
      [&](gemmtune::Context& opened, const gemmtune::Problem& asked) {
        return c::report(gemmtune::pack_weight(opened.device(), asked, target, plain, packed));
      });
}

gemmtune_status gemmtune_unpack_weight(const gemmtune_context* context, const gemmtune_problem* problem,
                                       gemmtune_layout layout, const void* packed, void* plain) {
  if (packed == nullptr) return c::fail_null("gemmtune_unpack_weight", "packed");
  if (plain == nullptr) return c::fail_null("gemmtune_unpack_weight", "plain");
  gemmtune::WeightLayout target;
  if (const auto status = c::read_layout(layout, target); status != GEMMTUNE_OK) return status;
  return c::with_weight(
      "gemmtune_unpack_weight", context, problem,
      [&](gemmtune::Context& opened, const gemmtune::Problem& asked) {
        return c::report(gemmtune::unpack_weight(opened.device(), asked, target, packed, plain));
      });
}

}  // extern "C"
