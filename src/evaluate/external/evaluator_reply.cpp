#include "evaluate/external/evaluator_reply.h"

#include <string>
#include <utility>

#include "formats/json.h"
#include "formats/json_text.h"

namespace gemmtune {

bool is_reply(const Json& reply, std::size_t id) {
  if (!reply.is_object()) return false;
  const auto found = reply.find("id");
  return found != reply.end() && *found == id;
}

Status error_of_reply(const Json& reply) {
  const auto error = reply.find("error");
  if (error == reply.end()) return {};
  std::string text = error->is_string() ? error->get<std::string>() : json_line(*error);
  if (text.empty()) text = "the evaluator gave no reason";
  const auto kind = reply.find("kind");
  if (kind != reply.end() && *kind == "refused") return Status(StatusCode::unsupported, std::move(text));
  if (kind != reply.end() && *kind == "out_of_memory")
    return Status(StatusCode::out_of_memory, std::move(text));
  return Status(StatusCode::internal, std::move(text));
}

Result<double> number_of_reply(const Json& reply, std::string_view what, const char* name, double min,
                               double max) {
  constexpr std::size_t quoted = 40;
  const auto found = reply.find(name);
  if (found != reply.end() && found->is_number()) {
    const auto value = found->get<double>();
    if (value >= min && value <= max) return value;
  }
  const std::string text = found == reply.end() ? "null" : json_line(*found);
  return Status::internal("the evaluator's {} has the \"{}\" {}, expected a number from {:g} to {:g}", what,
                          name, text.substr(0, quoted), min, max);
}

}  // namespace gemmtune
