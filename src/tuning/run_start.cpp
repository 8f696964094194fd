#include "tuning/run_start.h"

#include <string>
#include <utility>
#include <vector>

#include "resolve/candidate_list.h"
#include "search/strategy.h"

namespace gemmtune {

Publisher publisher_of(const TuneRequest& request, const RowEnvironment& environment) {
  PublishOptions options = request.publish;
  options.environment_json = environment.json;
  return {request.output, std::move(options)};
}

Result<KnownRows> start_run(const Device& device, const TuneRequest& request, const Publisher& publisher) {
  GEMMTUNE_RETURN_IF_ERROR(check_libtypes(device, request.libtypes));
  GEMMTUNE_RETURN_IF_ERROR(make_strategy(request.strategy, {}).status());
  GEMMTUNE_RETURN_IF_ERROR(publisher.check_writable());
  std::vector<std::string> paths{request.output};
  paths.insert(paths.end(), request.also_read.begin(), request.also_read.end());
  return KnownRows::read(paths, device.info());
}

}  // namespace gemmtune
