// The journal from outside: runs killed at random moments go on, nothing is measured twice, `journal` shows
// and forgets runs, recordings replay to the same text. GEMMTUNE_SOAK=1 kills 100 times instead of 5, runs
// over real kernels and over recorded ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "base/random.h"
#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

int kills_wanted() {
  const char* soak = std::getenv("GEMMTUNE_SOAK");
  return soak != nullptr && std::string(soak) != "0" ? 100 : 5;
}

class JournalCli : public ::testing::Test {
 protected:
  std::string output() const { return program.file("tuned.csv"); }
  std::string journal() const { return output() + ".journal"; }
  std::vector<std::string> tune_words(std::vector<std::string> more, int shapes = 3) const {
    std::string rows = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n";
    for (int i = 0; i < shapes; ++i)
      rows += std::to_string(i % 8 + 1) + "," + std::to_string(64 + 16 * (i / 8)) +
              ",64,False,torch.bfloat16,torch.bfloat16,False,False\n";
    std::vector<std::string> words = {"tune",    "-i",       program.folder().write("shapes.csv", rows),
                                      "-o",      output(),   "--libtype",
                                      "skinny",  "--search", "exhaustive",
                                      "--iters", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<Json> exported() const {
    std::vector<Json> lines;
    const auto result = program.run({"journal", "export", output(), "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const std::string& line : lines_of(result.out)) lines.push_back(parse_json(line));
    return lines;
  }
  Json runs() const {
    const auto result = program.run({"journal", "list", journal(), "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out)["runs"];
  }
  /// "M,N,K" → kernelName of the tuned file; every line must be whole.
  std::map<std::string, std::string> winners() const { return winners_in(output()); }
  static std::map<std::string, std::string> winners_in(const std::string& path) {
    std::map<std::string, std::string> rows;
    if (!std::filesystem::exists(path)) return rows;
    const std::string text = read_text(path);
    EXPECT_EQ(text.back(), '\n') << "half a file";
    const auto lines = lines_of(text);
    const auto columns = std::count(lines[0].begin(), lines[0].end(), ',');
    for (std::size_t i = 1; i < lines.size(); ++i) {
      EXPECT_EQ(std::count(lines[i].begin(), lines[i].end(), ','), columns) << lines[i];
      std::vector<std::string> cells;
      std::istringstream stream(lines[i]);
      for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
      rows[cells[2] + "," + cells[3] + "," + cells[4]] = cells[14];
    }
    return rows;
  }

  explicit JournalCli(const std::string& path = GEMMTUNE_SIMULATED_PROGRAM) : program(path) {}

  Program program;
};

class JournalOfRealRuns : public JournalCli {
 protected:
  JournalOfRealRuns() : JournalCli(GEMMTUNE_PROGRAM) {}
};

TEST_F(JournalOfRealRuns, KilledAtRandomMomentsTheRunGoesOnAndMeasuresNothingTwice) {
  const int kills = kills_wanted();
  const int shapes = kills == 5 ? 8 : 60;
  const auto words = tune_words({"-o2", program.file("profile.txt")}, shapes);
  Random random(7);
  int killed = 0;
  std::map<std::string, std::string> before;
  for (int i = 0; i < kills; ++i) {
    Subprocess process(program.words(words), program.options());
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + random.below(kills == 5 ? 1000 : 300)));
    process.send(SIGKILL);
    killed += process.wait().signal == SIGKILL;
    const auto now = winners();
    for (const auto& [key, kernel] : before) EXPECT_EQ(now.at(key), kernel) << "a published winner stays";
    before = now;
  }
  EXPECT_GT(killed, 0);
  const auto last = program.run(words);
  ASSERT_EQ(last.exit_code, 0) << last.err << last.out;
  EXPECT_EQ(winners().size(), static_cast<std::size_t>(shapes));
  EXPECT_EQ(runs().size(), 1U) << "one run, gone on with";
  EXPECT_EQ(runs()[0]["state"], "finished");
  std::map<std::string, std::size_t> samples;
  const std::string profile = read_text(program.file("profile.txt"));
  for (const Json& line : exported()) {
    const std::string candidate = line["candidate"];
    const std::string problem = line["problem"];
    // A run that takes some seconds measures the compute roof too: a product that is none of the shapes.
    if (line["stage"] != "screen" || problem.find(" k=64 ") == std::string::npos) continue;
    samples[problem + " " + candidate] += line["samples"].size();
    EXPECT_THAT(profile, HasSubstr(candidate));
  }
  EXPECT_GT(samples.size(), static_cast<std::size_t>(shapes));
  for (const auto& [candidate, count] : samples) EXPECT_LE(count, 3U) << candidate;
}

/// Whole spaces, recorded: no noise of this machine, so a run that was killed ends with the rows of one that
/// was not.
TEST_F(JournalCli, AReplayThatIsKilledAtRandomMomentsEndsWithTheSameRows) {
  using Clock = std::chrono::steady_clock;
  const auto words = [](const std::string& tuned) {
    return std::vector<std::string>{"tune", "--replay", GEMMTUNE_TEST_DATA "/recordings/cpu-amx.jsonl.gz",
                                    "-o",   tuned,      "--confirmations",
                                    "1",    "--quiet"};
  };
  const auto begin = Clock::now();
  ASSERT_EQ(program.run(words(program.file("whole.csv"))).exit_code, 0);
  const std::chrono::duration<double, std::micro> whole = Clock::now() - begin;
  const auto expected = winners_in(program.file("whole.csv"));
  ASSERT_GE(expected.size(), 10U);
  Random random(8);
  const int kills = kills_wanted();
  int killed = 0;
  std::size_t before = 0;
  while (killed < kills) {
    const double rows_left = 1 - static_cast<double>(before) / static_cast<double>(expected.size());
    Subprocess process(program.words(words(output())), program.options());
    std::this_thread::sleep_for(
        std::chrono::microseconds(random.below(static_cast<std::uint64_t>(rows_left * whole.count()) + 1)));
    process.send(SIGKILL);
    killed += process.wait().signal == SIGKILL;
    const auto rows = winners();
    for (const auto& [key, kernel] : rows) ASSERT_EQ(expected.at(key), kernel) << key;
    ASSERT_GE(rows.size(), before) << "a published winner stays";
    before = rows.size();
    if (before < expected.size()) continue;
    std::filesystem::remove(output());  // the next run, from its beginning
    before = 0;
  }
  ASSERT_EQ(program.run(words(output())).exit_code, 0);
  EXPECT_EQ(winners(), expected);
}

TEST_F(JournalCli, ListExportPrune) {
  ASSERT_EQ(program.run(tune_words({"--budget", "2"}, 2)).exit_code, 0);
  ASSERT_EQ(program.run(tune_words({"--budget", "2", "--all"}, 2)).exit_code, 0);
  ASSERT_EQ(program.run(tune_words({"--budget", "2"}, 2)).exit_code, 0) << "nothing to do: no run of its own";
  const Json all = runs();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["problems"], 2);
  EXPECT_EQ(all[0]["decided"], 2);
  EXPECT_GT(all[0]["candidates"].get<int>(), 2);
  const auto table = program.run({"journal", "list", output()});
  EXPECT_THAT(table.out, HasSubstr("finished"));
  const auto csv = program.run({"journal", "export", journal()});
  EXPECT_EQ(csv.exit_code, 0);
  EXPECT_THAT(csv.out, HasSubstr("run,at,device,env,problem,stage,m,candidate,source,kind,reason"));
  EXPECT_EQ(lines_of(csv.out).size(), exported().size() + 1);
  const auto shared = program.run({"journal", "export", journal(), "--to", "t4"});
  ASSERT_EQ(shared.exit_code, 0) << shared.err;
  const Json t4 = Json::parse(shared.out);
  EXPECT_EQ(t4["schema_version"], "1.0.0");
  const std::vector<Json> outcomes = exported();
  ASSERT_EQ(t4["results"].size(), outcomes.size());
  for (std::size_t index = 0; index < t4["results"].size(); ++index) {
    const Json& result = t4["results"][index];
    const Json& line = outcomes[index];
    EXPECT_EQ(result["configuration"]["kernel"], line["candidate"]);
    EXPECT_EQ(result["times"]["runtimes"].size(), line["samples"].size());
    EXPECT_EQ(result["invalidity"] == "correct", line["kind"] == "ok") << result;
    if (line["kind"] == "ok") {
      EXPECT_EQ(result["correctness"], 1 - line["err_ratio"].get<double>());
    }
  }
  EXPECT_EQ(program.run({"journal", "export", journal(), "--to", "xml"}).exit_code, 2);
  EXPECT_EQ(program.run({"journal", "list", journal(), "--to", "t4"}).exit_code, 2);
  EXPECT_THAT(csv.out, HasSubstr(" source ")) << "own kernels are known by their source";
  EXPECT_THAT(program.run({"journal", "prune", journal(), "--keep", "1"}).out, HasSubstr("1 run forgotten"));
  EXPECT_EQ(runs().size(), 1U);
  EXPECT_THAT(program.run({"journal", "prune", journal(), "--older-than", "1"}).out, HasSubstr("0 runs"));
  EXPECT_EQ(program.run({"journal", "prune", journal()}).exit_code, 2);
  EXPECT_EQ(program.run({"journal", "list", program.file("gone.csv")}).exit_code, 2);
  EXPECT_EQ(program.run({"journal", "burn", journal()}).exit_code, 2);
}

TEST_F(JournalCli, ADamagedJournalIsMovedAsideAndSaid) {
  program.folder().write("tuned.csv.journal", std::string(5000, 'x'));
  const auto result = program.run(tune_words({"--budget", "1"}, 1));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("tuned.csv.journal.damaged"));
  EXPECT_EQ(read_text(journal() + ".damaged"), std::string(5000, 'x'));
  EXPECT_EQ(runs().size(), 1U);
}

TEST_F(JournalCli, AJournalThatCannotBeWrittenIsSaidBeforeAnythingSlow) {
  std::filesystem::create_directories(journal());
  const auto folder = program.run(tune_words({}, 1));
  EXPECT_EQ(folder.exit_code, 2);
  EXPECT_EQ(lines_of(folder.err).size(), 1U) << folder.err;
  EXPECT_THAT(folder.err, HasSubstr("the journal of measurements"));
  std::filesystem::remove(journal());
  SubprocessOptions full = program.options();
  full.max_file_bytes = 20000;
  const auto result = program.run(tune_words({}, 1), full);
  EXPECT_EQ(result.exit_code, 2) << result.out;
  EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
  EXPECT_THAT(result.err, HasSubstr("tuned.csv.journal"));
}

TEST_F(JournalCli, ARecordingReplaysToTheSameTextTwice) {
  const std::string recording = program.file("run.jsonl");
  ASSERT_EQ(program.run(tune_words({"--record", recording}, 2)).exit_code, 0);
  std::set<std::string> texts;
  std::set<std::string> tables;
  for (const std::string name : {"a", "b"}) {
    const std::string folder = program.file(name);
    std::filesystem::create_directories(folder);
    const auto replay = program.run({"tune", "--replay", recording, "-o", folder + "/replayed.csv",
                                     "--libtype", "skinny", "--json", "--quiet"});
    ASSERT_EQ(replay.exit_code, 0) << replay.err;
    Json json = parse_json(replay.out);
    json.erase("output");
    texts.insert(json.dump());
    tables.insert(read_text(folder + "/replayed.csv"));
    EXPECT_FALSE(std::filesystem::exists(folder + "/replayed.csv.journal"));
  }
  EXPECT_EQ(texts.size(), 1U);
  EXPECT_EQ(tables.size(), 1U);
  EXPECT_EQ(lines_of(*tables.begin()).size(), 3U);
  const auto wrong = program.run(
      {"tune", "--replay", recording, "-o", program.file("c.csv"), "--cache", "warm", "--libtype", "skinny"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("was recorded with"));
  EXPECT_EQ(program.run({"tune", "--replay", recording, "--record", recording}).exit_code, 2);
  EXPECT_EQ(program.run({"tune", "--replay", recording, "--threads", "1"}).exit_code, 2);
  const auto other = program.run(tune_words({"--all", "--record", recording, "--cache", "warm"}, 1));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("another device, build or policy"));
}

TEST_F(JournalCli, AnInterruptedRunKeepsItsProfileAndGoesOn) {
  const std::string profile = program.file("profile.txt");
  const auto words = tune_words({"-o2", profile}, 20);
  {
    Subprocess process(program.words(words), program.options());
    EXPECT_TRUE(process.wait_until([&] { return std::filesystem::exists(output()); }));
    process.send(SIGINT);
    const auto result = process.wait();
    EXPECT_EQ(result.exit_code, 130) << "signal " << result.signal << "\n" << result.err;
  }
  const std::string text = read_text(profile);
  for (const Json& line : exported()) {
    if (line["stage"] == "screen") {
      EXPECT_THAT(text, HasSubstr(line["candidate"].get<std::string>()));
    }
  }
  EXPECT_EQ(runs()[0]["state"], "unfinished");
  const auto fresh = program.run(tune_words({"--no-resume", "--budget", "1"}, 20));
  EXPECT_THAT(fresh.err, Not(HasSubstr("going on with")));
}

}  // namespace
}  // namespace gemmtune::test
