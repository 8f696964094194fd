#include "evaluate/worker/worker_protocol.h"

#include <utility>

#include "evaluate/fields_json.h"
#include "evaluate/outcome_json.h"
#include "formats/json.h"
#include "formats/json_text.h"

namespace gemmtune {

GEMMTUNE_FIELDS(OpenRequest, backend, device, evaluation, version);
GEMMTUNE_FIELDS(AnnounceRequest, problem, candidates);
GEMMTUNE_FIELDS(ScreenRequest, problem, candidate, samples);
GEMMTUNE_FIELDS(RoundsKind, energy, routing);
GEMMTUNE_FIELDS(FinalsRequest, problem, candidates, rounds, kind);
GEMMTUNE_FIELDS(NeighbourRequest, problem, candidate, m);

namespace {

constexpr std::string_view ask_of(const OpenRequest&) { return "open"; }
constexpr std::string_view ask_of(const AnnounceRequest&) { return "announce"; }
constexpr std::string_view ask_of(const ScreenRequest&) { return "screen"; }
constexpr std::string_view ask_of(const FinalsRequest&) { return "finals"; }
constexpr std::string_view ask_of(const NeighbourRequest&) { return "neighbour"; }

/// The request of the variant's alternatives from `index` on that is named `ask`.
template <std::size_t index = 0>
WorkerRequest content_in(const Json& json, const std::string& ask) {
  if constexpr (index == std::variant_size_v<WorkerRequest>) {
    throw Json::other_error::create(501, "no request: " + ask, &json);
  } else {
    using Request = std::variant_alternative_t<index, WorkerRequest>;
    if (ask == ask_of(Request())) return json.get<Request>();
    return content_in<index + 1>(json, ask);
  }
}

Status not_understood(const std::exception& error) {
  return Status::internal("a message between tuner and worker was not understood: {}", error.what());
}

}  // namespace

std::string gemmtune_version_text() { return GEMMTUNE_VERSION; }

std::string print_request(const NumberedRequest& request) {
  Json json = std::visit(
      [](const auto& content) {
        Json fields = content;
        fields["ask"] = ask_of(content);
        return fields;
      },
      request.content);
  json["number"] = request.number;
  return json_line(json);
}

Result<NumberedRequest> parse_request(std::string_view text) {
  try {
    const Json json = parse_json(text);
    return NumberedRequest{json.at("number"), content_in(json, json.at("ask"))};
  } catch (const Json::exception& error) {
    return not_understood(error);
  }
}

std::string print_reply(const WorkerReply& reply) {
  Json json = {{"number", reply.number},
               {"waited_seconds", reply.waited_seconds},
               {"processor_seconds", reply.processor_seconds}};
  if (!reply.status.ok()) {
    json["error"] = {{"code", static_cast<int>(reply.status.code())}, {"text", reply.status.message()}};
    return json_line(json);
  }
  json["candidate_seconds"] = reply.candidate_seconds;
  json["result"] = to_json(reply.result);
  return json_line(json);
}

Result<WorkerReply> parse_reply(std::string_view text) {
  try {
    const Json json = parse_json(text);
    WorkerReply reply;
    reply.number = json.at("number");
    reply.waited_seconds = json.at("waited_seconds");
    reply.processor_seconds = json.at("processor_seconds");
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
