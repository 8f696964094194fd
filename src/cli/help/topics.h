// Lists that help, the manual page and reference pages of docs/ show: verdicts, columns of tuned files, environment variables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gemmtune::cli {

struct HelpTopicEntry {
  std::string name;
  std::string text;  // sentences
};
struct HelpTopicGroup {
  std::string_view heading;
  std::vector<HelpTopicEntry> entries;
};
struct HelpTopic {
  std::string_view name;   // of `gemmtune help NAME`
  std::string_view about;  // one line
  std::vector<HelpTopicGroup> groups;
  std::string_view footer;
};

std::vector<HelpTopic> help_topics();

}  // namespace gemmtune::cli
