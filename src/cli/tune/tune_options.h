// What the user of `gemmtune tune` asked for, and the steps from there to a TuneRequest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/environment.h"
#include "base/status.h"
#include "cli/shared/device_options.h"
#include "cli/shared/model_options.h"
#include "cli/shared/size_options.h"
#include "formats/shapes/shape_list.h"
#include "formats/shards/shard_file.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// Values as they were given; each field has a line in the option table (option_table.h). What the tuner
/// takes as it is, is in `request` and its policy.
struct TuneOptions {
  SizeOptions size;
  DeviceOptions device;
  ModelOptions model;
  TuneRequest request;
  std::string input;                   // empty: the config folder's untuned file
  std::int64_t limit = max_dimension;  // more shapes than any list has
  std::int64_t max_dim = max_dimension;
  std::string output;          // colon list; empty: default_output
  std::string default_output;  // where `output` is empty; empty: the config folder's tuned file
  std::string profile;
  std::string schema = "aiter";
  std::string sort;  // "true", "false"; empty: off
  std::string families = "all";
  std::string search_space;   // file; empty: none
  std::string rules = "own";  // own, tune_gemm_v2
  std::string cache = "weights-cold";
  std::string launch = "graph";           // graph, eager
  std::string team;                       // own, openmp; empty: GEMMTUNE_TEAM, else openmp
  std::string between = "none";           // none, parallel
  std::string clock = "wall";             // wall, processor
  std::string accuracy = "default";       // default, fast
  std::string objective = "time";         // time, energy, edp
  std::string routing = "uniform";        // uniform, zipf, trace:FILE
  std::string routing_trace;              // file; empty: none
  std::optional<std::string> run_config;  // an empty text: the input with defaults
  std::int64_t seed = 1;
  bool dry_run = false;
  bool compare = false;
  bool update_improved = false;
  double min_improvement = 3.0;  // percent
  bool resume = true;
  bool retry_failed = false;
  std::string record;          // file; empty: none
  std::string events;          // file; empty: none
  bool add_device = false;     // the output may hold rows of other devices alone
  std::string shard;           // I/N, auto, auto/N; empty: all shapes
  bool list = false;           // print the shapes, and end
  std::string journal_folder;  // of the journal while the run lasts; empty: beside the output
  std::string replay;          // file; empty: none
  bool verbose = false;
  bool quiet = false;
  bool strict = false;
  bool json = false;
  int workers = 0;               // --mp; 0: one a device
  std::string timeout = "1800";  // seconds, or none
  bool shape_grouped = false;    // accepted: shapes are never split among devices
  bool in_process = false;
  std::string m_range;                   // A:B; empty: tune the M of the shapes
  double m_regret = 2.0;                 // percent
  bool buckets = false;                  // output is a folder
  std::string bucket_scheme = "thirds";  // thirds, bounds
  std::string pdl = "off";               // off, allow
  std::string invariant;                 // rows; empty: not
  int confirmations = 0;                 // 0: two on a CPU, one elsewhere

  // AITER's (cli/compat/translation.h)
  bool preshuffle = false;
  bool all_bias = false;
  bool last = false;
  bool with_hipblaslt = false;  // accepted
  std::string blocks_per_unit;  // refused, as the next two
  bool grouped_gemm = false;
  bool mxfp4_flydsl = false;

  // tune_gemm's (cli/compat/tune_gemm_mode.h)
  bool compare_wo_tuning = false;
  bool benchmark = false;
  bool keep = false;
  bool time_breakdown = false;
  int jobs = 1;         // accepted
  int gpus = 0;         // --ngpus; 0: not given
  std::string gpu_ids;  // "0,1"; empty: not given
  bool no_warmup = false;
  bool icache_flush = false;
  bool bias_vector = false;
  bool hack_triton_compiler = false;  // accepted
  std::string init_type = "randn";
  bool checks_winners = false;     // what --compare means in tune_gemm's mode; set by translate()
  std::vector<std::string> notes;  // about words that change nothing here; set by translate()
};

/// Values out of bounds, unknown words and contradictions: what needs no machine and no file. A single size
/// with
/// --m-range needs no -m: its M becomes the last of the range.
Status check_options(TuneOptions& options);

/// --m-range "A:B" with 1 ≤ A ≤ B ≤ 2³¹ − 1, and --m-regret. Requires a text.
Result<MRangeRequest> m_range_of(const TuneOptions& options);

/// No dimension of the problem is above --max-dim.
bool is_within(const TuneOptions& options, const Problem& problem);
/// The options name shapes: a single size, a file or a model.
bool names_shapes(const TuneOptions& options);
/// The shapes asked for: of a single size, a model, a file or the config folder, within --max-dim, cut to --limit.
Result<ShapeList> shapes_of(const TuneOptions& options, const Environment& environment,
                            const DeviceInfo& device);

/// Where the results go, of a shard under its name; the config folder's file of the operation (that of the shapes) where no -o was given
/// (its folder is made). Checked for writing; a file or schema without gfx is refused for a device that needs
/// it.
struct Outputs {
  std::string tuned;
  std::vector<std::string> also_read;
  std::string profile;
  std::string journal;              // beside `tuned`
  std::string working_journal;      // that the run writes; the same unless --journal names a folder
  std::string made_journal_folder;  // that folder, if it was not there before
  bool is_config_file = false;
  std::string
      folder;  // -o FOLDER: `tuned` has its operation's name there, so that it can be a config folder; else empty
  bool is_written = true;   // false: nothing is (--init_type zeros)
  std::string keep_folder;  // of --keep; empty: none
};
Result<Outputs> outputs_of(const TuneOptions& options, const Environment& environment,
                           const DeviceInfo& device, const ShapeList& shapes,
                           const std::optional<Shard>& shard = std::nullopt);

/// The device's usual policy with what the options change. Requires checked options.
Policy policy_of(const TuneOptions& options, const DeviceInfo& device);
/// --timeout in seconds; infinity for none.
Result<double> timeout_of(const TuneOptions& options);
/// Ends at Ctrl-C (interrupt.h).
Result<TuneRequest> request_of(const TuneOptions& options, const ShapeList& shapes, const Outputs& outputs,
                               const Device& device);

}  // namespace gemmtune::cli
