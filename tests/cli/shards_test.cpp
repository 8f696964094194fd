// `tune --shard` and `merge --expect-shards` from outside: shards of a recording are one run byte for byte, nothing that
// is missing gets into a table, two processes lose no row, killed shards go on, journals come together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>

#include "base/random.h"
#include "cli/program.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/json.h"

namespace gemmtune::test::shards_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string recording = GEMMTUNE_TEST_DATA "/recordings/cpu-amx.jsonl.gz";

std::vector<std::string> text_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class Shards : public ::testing::Test {
 protected:
  std::string tuned() const { return program.file("tuned.csv"); }
  std::string part(int index, int count) const {
    return program.file("tuned." + std::to_string(index) + "of" + std::to_string(count) + ".csv");
  }
  /// Of the recording; all of it without a shard.
  std::vector<std::string> replay_words(const std::string& shard, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"tune",  "--replay",        recording, "-o",
                                      tuned(), "--confirmations", "1",       "-q"};
    if (!shard.empty()) words.insert(words.end(), {"--shard", shard});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void replay_shards(int count, const std::vector<std::string>& more = {}) const {
    for (int i = 1; i <= count; ++i) {
      const auto result = program.run(replay_words(std::to_string(i) + "/" + std::to_string(count), more));
      ASSERT_EQ(result.exit_code, 0) << result.err;
    }
  }
  SubprocessResult merge(int count, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"merge",
                                      program.file("tuned.*of" + std::to_string(count) + ".csv"),
                                      "--expect-shards",
                                      std::to_string(count),
                                      "-o",
                                      tuned()};
    words.insert(words.end(), more.begin(), more.end());
    return program.run(words);
  }
  /// A run on the simulated CPU, where every shape takes some tenths of a second.
  std::vector<std::string> tune_words(std::vector<std::string> more, int shapes = 4) const {
    std::string rows = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n";
    for (int i = 0; i < shapes; ++i)
      rows += std::to_string(i % 8 + 1) + "," + std::to_string(64 + 16 * (i / 2)) +
              ",64,False,torch.bfloat16,torch.bfloat16,False,False\n";
    std::vector<std::string> words = {"tune",    "-i",       program.folder().write("shapes.csv", rows),
                                      "-o",      tuned(),    "--libtype",
                                      "skinny",  "--search", "exhaustive",
                                      "--iters", "1",        "--confirmations",
                                      "1",       "-q"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Json listed(const std::vector<std::string>& words) const {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--list", "--json"});
    const auto result = program.run(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out);
  }
  std::vector<Json> exported(const std::string& file) const {
    std::vector<Json> lines;
    const auto result = program.run({"journal", "export", file, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const std::string& line : text_lines(result.out)) lines.push_back(parse_json(line));
    return lines;
  }
  void expect_refused(const SubprocessResult& result, const std::string& why) const {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(text_lines(result.err).size(), 1U) << result.err;
    EXPECT_THAT(result.err, HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(tuned())) << "nothing is written";
  }
  /// A text of a file replaced everywhere.
  void replace_in(const std::string& path, const std::string& from, const std::string& to) const {
    std::string text = read_text(path);
    ASSERT_NE(text.find(from), std::string::npos) << path << ": " << from;
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
    std::ofstream(path, std::ios::binary) << text;
  }

  SimulatedProgram program;
};

TEST_F(Shards, OfARecordingAreOneRunByteForByte) {
  for (const std::string search : {"staged", "exhaustive"}) {
    const std::string whole = program.file(search + ".csv");
    ASSERT_EQ(program
                  .run({"tune", "--replay", recording, "-o", whole, "--confirmations", "1", "-q", "--search",
                        search})
                  .exit_code,
              0);
    for (const int count : search == "staged" ? std::vector{2, 5} : std::vector{2}) {
      replay_shards(count, {"--search", search, "--all"});
      const auto merged = merge(count);
      ASSERT_EQ(merged.exit_code, 0) << merged.err;
      EXPECT_EQ(read_text(tuned()), read_text(whole)) << search << " " << count;
    }
  }
}

TEST_F(Shards, ListIsAPartitionThatNeedsNoDevice) {
  const std::string shapes = GEMMTUNE_SOURCE_DIR "/shapes/llm_dense_192.csv";
  const Json all = listed({"tune", "-i", shapes, "--backend", "cuda", "--shard", "all/7"});
  EXPECT_EQ(all["shapes"].size(), 192U);
  EXPECT_EQ(all["predicted_for"], "GPU");
  std::set<std::string> problems;
  std::vector<double> loads(7);
  for (int shard = 1; shard <= 7; ++shard) {
    const Json one =
        listed({"tune", "-i", shapes, "--backend", "cuda", "--shard", std::to_string(shard) + "/7"});
    EXPECT_EQ(one["list"], all["list"]);
    for (const Json& shape : one["shapes"]) {
      EXPECT_EQ(shape["shard"], shard);
      EXPECT_TRUE(problems.insert(shape["problem"].get<std::string>()).second) << "in two shards";
      loads[shard - 1] += shape["predicted_seconds"].get<double>();
    }
    EXPECT_NEAR(loads[shard - 1], one["loads"][shard - 1]["predicted_seconds"].get<double>(), 1e-6);
  }
  EXPECT_EQ(problems.size(), 192U);
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  EXPECT_LT(*most / *least, 1.1) << "no shard has much more than another";
  const Json cpu = listed({"tune", "-i", shapes, "--backend", "cpu", "--shard", "1/7"});
  EXPECT_NE(cpu["list"], all["list"]) << "dealt for other machines";
  const auto text = program.run({"tune", "-i", shapes, "--shard", "2/7", "--list"});
  EXPECT_THAT(text.out, HasSubstr("shard 2 of 7: "));
  EXPECT_EQ(program.run({"tune", "-i", shapes, "--list"}).exit_code, 2);
}

TEST_F(Shards, AutoIsWhatSchedulersSay) {
  using Variables = std::map<std::string, std::string>;
  const auto line = [&](const std::string& text, const Variables& variables) {
    SubprocessOptions options = program.options();
    for (const char* name :
         {"SLURM_ARRAY_TASK_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX",
          "JOB_COMPLETIONS", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"})
      options.environment[name] = "";
    for (const auto& [name, value] : variables) options.environment[name] = value;
    const auto result =
        program.run({"tune", "-m", "1", "-n", "64", "-k", "64", "--list", "--shard", text}, options);
    const auto lines = text_lines(result.exit_code == 0 ? result.out : result.err);
    return lines.empty() ? std::string() : lines.back();
  };
  const Variables array = {{"SLURM_ARRAY_TASK_ID", "7"},   {"SLURM_ARRAY_TASK_COUNT", "3"},
                           {"SLURM_ARRAY_TASK_MIN", "5"},  {"SLURM_ARRAY_TASK_MAX", "7"},
                           {"SLURM_ARRAY_TASK_STEP", "1"}, {"SLURM_PROCID", "0"}};
  EXPECT_THAT(line("auto", array), HasSubstr("shard 3 of 3:"));
  Variables steps = array;
  steps["SLURM_ARRAY_TASK_ID"] = "9";
  steps["SLURM_ARRAY_TASK_MAX"] = "9";
  steps["SLURM_ARRAY_TASK_STEP"] = "2";
  EXPECT_THAT(line("auto", steps), HasSubstr("shard 3 of 3:"));
  Variables tasks = array;
  tasks["SLURM_PROCID"] = "1";
  tasks["SLURM_STEP_NUM_TASKS"] = "4";
  EXPECT_THAT(line("auto", tasks), HasSubstr("shard 10 of 12:")) << "tasks within an array";
  EXPECT_THAT(line("auto", {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}}), HasSubstr("shard 2 of 4:"));
  EXPECT_THAT(line("auto", {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "3"},
                            {"SLURM_PROCID", "0"},
                            {"SLURM_NTASKS", "8"}}),
              HasSubstr("shard 3 of 3:"));
  EXPECT_THAT(line("auto", {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), HasSubstr("shard 1 of 2:"));
  EXPECT_THAT(line("auto", {{"JOB_COMPLETION_INDEX", "4"}, {"JOB_COMPLETIONS", "5"}}),
              HasSubstr("shard 5 of 5:"));
  EXPECT_THAT(line("auto/5", {{"JOB_COMPLETION_INDEX", "4"}}), HasSubstr("shard 5 of 5:"));

  EXPECT_THAT(line("auto", {}), HasSubstr("no scheduler says"));
  EXPECT_THAT(line("auto", {{"JOB_COMPLETION_INDEX", "4"}}), HasSubstr("JOB_COMPLETIONS"));
  EXPECT_THAT(line("auto/3", {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), HasSubstr("says that there are 2"));
  EXPECT_THAT(line("auto", {{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}), HasSubstr("expected an index below"));
  Variables gaps = array;  // --array=5,6,9: one of them was asked for again, say
  gaps["SLURM_ARRAY_TASK_MAX"] = "9";
  EXPECT_THAT(line("auto", gaps), HasSubstr("expected ids a step apart"));
  for (const std::string bad : {"0/2", "3/2", "1", "1/0", "a/b", "1/2/3", "-1/2", "auto/0", "1.5/2"})
    EXPECT_THAT(line(bad, {}), HasSubstr("expected I/N")) << bad;
}

TEST_F(Shards, MergeRefusesWhatATableForAllMachinesMustNotHave) {
  replay_shards(3);
  std::filesystem::rename(part(2, 3), program.file("aside"));
  expect_refused(merge(3), "1 shard missing: 2/3; --allow missing");
  std::filesystem::rename(program.file("aside"), part(2, 3));
  expect_refused(merge(2), "no file of this pattern");
  expect_refused(program.run({"merge", part(1, 3), "--expect-shards", "4", "-o", tuned()}),
                 "is shard 1/3, expected one of 4");
  expect_refused(merge(3, {"--allow", "missing,sloppiness"}),
                 "'sloppiness', expected words of missing, unfinished");

  const std::string shard_file = part(2, 3) + ".shard.json";
  const std::string before = read_text(shard_file);
  replace_in(shard_file, "\"finished\"", "\"running\"");
  expect_refused(merge(3), "1 shard not finished: 2/3 (running)");
  replace_in(shard_file, "\"libtypes=all", "\"libtypes=tiled");
  expect_refused(merge(3, {"--allow", "unfinished"}), "runs with other options");
  std::ofstream(shard_file) << before;
  replace_in(shard_file, "\"list\": \"", "\"list\": \"f");
  expect_refused(merge(3, {"--allow", "options"}), "different lists of shapes");
  std::ofstream(shard_file) << "[]";
  expect_refused(merge(3), "tuned.2of3.csv.shard.json");
  std::filesystem::remove(shard_file);
  expect_refused(merge(3), "there is no " + shard_file);
  std::ofstream(shard_file) << before;

  const std::string rows = read_text(part(2, 3));
  std::filesystem::copy(part(1, 3), program.file("tuned.x.1of3.csv"));
  std::filesystem::copy(part(1, 3) + ".shard.json", program.file("tuned.x.1of3.csv.shard.json"));
  expect_refused(merge(3), "both are shard 1/3");
  std::filesystem::remove(program.file("tuned.x.1of3.csv"));
  replace_in(part(2, 3), "x86-amx,1,", "x86-amx,2,");
  expect_refused(merge(3), "rows of several devices: x86-amx cu_num 1");
  std::ofstream(part(2, 3)) << rows;
  const std::string environment = parse_json(before)["env"];
  replace_in(part(2, 3), environment, "0123456789");
  expect_refused(merge(3), "rows of several environments: 0123456789");
  std::ofstream(part(2, 3)) << rows;
  const auto lines = text_lines(rows);
  std::ofstream(part(2, 3)) << rows.substr(0, rows.size() - lines.back().size() - 1);
  expect_refused(merge(3), "1 shape without a row: ");
  const auto allowed = merge(3, {"--allow", "unanswered", "--json"});
  EXPECT_EQ(allowed.exit_code, 1) << allowed.err;
  ASSERT_EQ(parse_json(allowed.out)["findings"].size(), 1U);
  EXPECT_EQ(parse_json(allowed.out)["findings"][0]["kind"], "unanswered");
  EXPECT_EQ(text_lines(read_text(tuned())).size(), 12U) << "a header, and all rows but one";
  // Another table has the row.
  std::filesystem::remove(tuned());
  const std::string other = program.folder().write("earlier.csv", lines.front() + "\n" + lines.back() + "\n");
  EXPECT_EQ(merge(3, {other}).exit_code, 0);
  EXPECT_EQ(text_lines(read_text(tuned())).size(), 13U);
}

TEST_F(Shards, NoTwoProcessesWriteOneFileOrLoseARow) {
  // As an engine starts them: all at once, with one -o; and each of them twice. tune_words writes the list of shapes,
  // so it comes before the first process that reads it.
  std::vector<std::vector<std::string>> commands;
  for (int i = 1; i <= 3; ++i)
    commands.push_back(program.words(tune_words({"--shard", std::to_string(i) + "/3"}, 12)));
  std::vector<std::unique_ptr<Subprocess>> processes;
  for (int twice = 0; twice < 2; ++twice) {
    for (const auto& command : commands)
      processes.push_back(std::make_unique<Subprocess>(command, program.options()));
  }
  for (const auto& process : processes) {
    const auto result = process->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  EXPECT_FALSE(std::filesystem::exists(tuned())) << "no shard writes the whole table";
  std::size_t rows = 0;
  for (int i = 1; i <= 3; ++i) {
    rows += text_lines(read_text(part(i, 3))).size() - 1;
    std::set<std::string> measured;
    for (const Json& line : exported(part(i, 3))) {
      if (line["stage"] != "screen") continue;
      EXPECT_TRUE(
          measured.insert(line["problem"].get<std::string>() + line["candidate"].get<std::string>()).second)
          << "the second process of a shard waits, and measures nothing again";
    }
  }
  EXPECT_EQ(rows, 12U);
  const auto merged = merge(3);
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(text_lines(read_text(tuned())).size(), 13U);
  const auto other =
      program.run({"tune", "-m", "1", "-n", "64", "-k", "64", "--shard", "1/3", "-o", part(2, 3)});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("is named after shard 2/3, but this is shard 1/3"));
}

TEST_F(Shards, AKilledShardGoesOnAndTheMergeIsOneRun) {
  using Clock = std::chrono::steady_clock;
  const std::string whole = program.file("whole.csv");
  const auto begin = Clock::now();
  ASSERT_EQ(program.run({"tune", "--replay", recording, "-o", whole, "--confirmations", "1", "-q"}).exit_code,
            0);
  const std::chrono::duration<double, std::micro> seconds = Clock::now() - begin;
  ASSERT_EQ(program.run(replay_words("1/2")).exit_code, 0);
  Random random(3);
  int killed = 0;
  for (int i = 0; i < 3; ++i) {
    Subprocess process(program.words(replay_words("2/2")), program.options());
    std::this_thread::sleep_for(
        std::chrono::microseconds(random.below(static_cast<std::uint64_t>(seconds.count() / 2) + 1)));
    process.send(SIGKILL);
    killed += process.wait().signal == SIGKILL;
  }
  EXPECT_GT(killed, 0);
  ASSERT_EQ(program.run(replay_words("2/2")).exit_code, 0);
  const auto merged = merge(2);
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  const auto of_shards = read_tuned_csv(tuned());
  const auto of_one_run = read_tuned_csv(whole);
  ASSERT_TRUE(of_shards.ok() && of_one_run.ok());
  ASSERT_EQ(of_shards->entries.size(), of_one_run->entries.size());
  // A kill within a shape's rounds: those that are left are drawn from the recording's first ones again, and a time differs.
  int equal = 0;
  for (std::size_t row = 0; row < of_one_run->entries.size(); ++row) {
    const TunedEntry& a = of_shards->entries[row];
    const TunedEntry& b = of_one_run->entries[row];
    EXPECT_EQ(print(a.problem), print(b.problem));
    EXPECT_NEAR(a.speedup.value_or(1) / b.speedup.value_or(1), 1, 0.05) << print(a.problem);
    equal += a.kernel_name == b.kernel_name && a.us == b.us ? 1 : 0;
  }
  EXPECT_GE(equal, static_cast<int>(of_one_run->entries.size()) - killed);
}

TEST_F(Shards, JournalsComeTogetherAndTheWholeListGoesOnWithThem) {
  const std::string local = program.file("local");
  ASSERT_EQ(program.run(tune_words({"--shard", "1/2", "--journal", local}, 8)).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(local)) << "copied beside the output, then removed";
  {
    Subprocess second(program.words(tune_words({"--shard", "2/2"}, 8)), program.options());
    EXPECT_TRUE(second.wait_until([&] { return std::filesystem::exists(part(2, 2)); }));
    second.send(SIGKILL);
    second.wait();
  }
  const std::size_t first_lines = exported(part(1, 2)).size();
  const std::size_t second_lines = exported(part(2, 2)).size();
  EXPECT_GT(first_lines, 4U);
  for (int twice = 0; twice < 2; ++twice) {
    const auto merged = merge(2, {"--allow", "unfinished,unanswered"});
    ASSERT_EQ(merged.exit_code, 1) << merged.err;
    EXPECT_EQ(exported(tuned()).size(), first_lines + second_lines) << "twice changes nothing";
  }
  const Json runs = parse_json(program.run({"journal", "list", tuned(), "--json"}).out)["runs"];
  ASSERT_EQ(runs.size(), 1U) << "shards of a list are one run";
  const std::string damaged = part(1, 2) + ".journal";
  std::filesystem::rename(damaged, program.file("aside"));
  std::ofstream(damaged) << std::string(5000, 'x');
  const auto without = merge(2, {"--allow", "unfinished,unanswered", "--json"});
  EXPECT_EQ(without.exit_code, 1);
  EXPECT_THAT(without.err, HasSubstr("measurements left out: " + damaged));
  EXPECT_EQ(parse_json(without.out)["journal"]["left_out"].size(), 1U);
  std::filesystem::rename(program.file("aside"), damaged);
  EXPECT_EQ(runs[0]["state"], "unfinished");
  ASSERT_EQ(program.run(tune_words({}, 8)).exit_code, 0);
  EXPECT_EQ(text_lines(read_text(tuned())).size(), 9U);
  std::map<std::string, std::size_t> samples;
  for (const Json& line : exported(tuned())) {
    if (line["stage"] == "screen")
      samples[line["problem"].get<std::string>() + " " + line["candidate"].get<std::string>()] +=
          line["samples"].size();
  }
  for (const auto& [candidate, count] : samples) EXPECT_LE(count, 3U) << candidate << " was measured again";
  EXPECT_EQ(parse_json(program.run({"journal", "list", tuned(), "--json"}).out)["runs"].size(), 1U);
}

TEST_F(Shards, AJournalOnALocalDiskIsFetchedByTheNextMachine) {
  const auto words = [&](const std::string& machine) {
    return tune_words({"--shard", "1/1", "--journal", program.file(machine)}, 8);
  };
  {
    Subprocess process(program.words(words("first")), program.options());
    EXPECT_TRUE(process.wait_until([&] { return std::filesystem::exists(part(1, 1)); }));
    process.send(SIGTERM);
    EXPECT_EQ(process.wait().exit_code, 130);
  }
  const std::size_t before = exported(part(1, 1)).size();
  EXPECT_GT(before, 0U) << "copied beside the output when it was interrupted";
  ASSERT_EQ(program.run(words("second")).exit_code, 0);
  const auto runs = parse_json(program.run({"journal", "list", part(1, 1), "--json"}).out)["runs"];
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0]["problems"], 8);
  EXPECT_GT(exported(part(1, 1)).size(), before);
}

TEST_F(Shards, ConfirmationTakesBackWhatDoesNotHold) {
  const std::string profile = program.file("all.csv");
  const std::string shapes =
      program.folder().write("shapes.csv",
                             "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
                             "1,64,64,False,torch.float32,torch.float32,False,False\n"
                             "2,128,64,False,torch.float32,torch.float32,False,False\n");
  const auto run = program.run({"tune", "-i", shapes, "-o", tuned(), "-o2", profile, "--libtype",
                                "skinny,tiled", "--search", "exhaustive", "--confirmations", "1", "-q"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto table = text_lines(read_text(tuned()));
  ASSERT_EQ(table.size(), 3U);
  // The first row claims what another machine may have measured: a kernel that is slow here, as a win.
  std::vector<std::string> cells;
  std::istringstream stream(table[1]);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  ASSERT_GT(cells.size(), 22U);
  std::string slowest;
  double slowest_us = 0;
  for (const std::string& line : text_lines(read_text(profile))) {
    std::vector<std::string> words;
    std::istringstream all(line);
    for (std::string cell; std::getline(all, cell, ',');) words.push_back(cell);
    const bool same_shape = words.size() > 14 && words[2] == cells[2] && words[3] == cells[3];
    if (!same_shape || words[14].empty()) continue;
    const double us = std::strtod(words[13].c_str(), nullptr);
    if (us > slowest_us) std::tie(slowest, slowest_us) = std::pair(words[14], us);
  }
  ASSERT_FALSE(slowest.empty());
  const std::string default_kernel = cells[20];
  ASSERT_NE(slowest, default_kernel);
  cells[10] = slowest.substr(0, slowest.find('_'));
  cells[14] = slowest;
  cells[21] = "1.01";
  cells[22] = "win";
  std::string forged;
  for (const std::string& cell : cells) forged += (forged.empty() ? "" : ",") + cell;
  const std::string claim =
      program.folder().write("claim.csv", table[0] + "\n" + forged + "\n" + table[2] + "\n");
  std::filesystem::copy(tuned() + ".env.json", claim + ".env.json");

  const std::string merged = program.file("merged.csv");
  const auto result = program.run({"merge", claim, "--confirm", "-o", merged, "--quiet"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  // A row that keeps the default is not measured again.
  const bool second_won = table[2].find(",win,") != std::string::npos;
  EXPECT_THAT(result.err, HasSubstr(second_won ? "1 of 2 rows hold" : "0 of 1 row hold"));
  EXPECT_THAT(result.err, HasSubstr("not confirmed: "));
  const auto rows = text_lines(read_text(merged));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[1], HasSubstr("," + default_kernel + ","));
  EXPECT_THAT(rows[1], Not(HasSubstr(slowest)));
  EXPECT_THAT(rows[1], HasSubstr(",undecided,"));
  EXPECT_EQ(rows[2], table[2]) << "rows that hold keep every byte";
  const Json notes = parse_json(read_text(merged + ".env.json"));
  ASSERT_EQ(notes.size(), 1U);
  const Json note = notes.begin().value()["confirmation"];
  EXPECT_EQ(note["held"], second_won ? 1 : 0);
  ASSERT_EQ(note["refuted"].size(), 1U);
  EXPECT_EQ(note["refuted"][0]["kernelName"], slowest);
  EXPECT_EQ(note["refuted"][0]["becomes"], default_kernel);

  const auto marked = program.run({"merge", claim, "--confirm=mark", "-o", merged, "--quiet", "--json"});
  EXPECT_EQ(marked.exit_code, 1) << marked.err;
  EXPECT_EQ(parse_json(marked.out)["confirmation"]["refuted"].size(), 1U);
  EXPECT_THAT(text_lines(read_text(merged))[1], HasSubstr(slowest)) << "only noted";
  // Where the default is wrong too, no kernel is known to be right and fast: the row goes.
  replace_in(claim, ",win,", ",default_wrong,");
  replace_in(claim, "," + slowest + ",", ",tiled_r1_no_such_kernel,");
  const auto gone = program.run({"merge", claim, "--confirm", "-o", merged, "--quiet"});
  EXPECT_EQ(gone.exit_code, 1) << gone.err;
  EXPECT_THAT(gone.err, HasSubstr("tiled_r1_no_such_kernel does not run here: "));
  EXPECT_THAT(gone.err, HasSubstr("1 row of 1 file merged"));
  EXPECT_EQ(text_lines(read_text(merged)).size(), 2U);
  EXPECT_EQ(program.run({"merge", claim, "--confirm", "-o", "-"}).exit_code, 2);
  EXPECT_EQ(program.run({"merge", claim, "--confirm=perhaps", "-o", merged}).exit_code, 2);
}

TEST_F(Shards, RangesOfMAndPackedWeightsStayTogether) {
  std::string rows = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n";
  for (const int n : {64, 128, 256}) {
    for (const int m : {1, 2, 4, 8})
      rows += std::to_string(m) + "," + std::to_string(n) +
              ",64,False,torch.bfloat16,torch.bfloat16,False,True\n";
  }
  const std::string shapes = program.folder().write("packed.csv", rows);
  const Json all = listed({"tune", "-i", shapes, "--shard", "all/9"});
  std::map<std::int64_t, std::set<int>> shards_of_weight;
  for (const Json& shape : all["shapes"]) shards_of_weight[shape["n"]].insert(shape["shard"].get<int>());
  for (const auto& [n, shards] : shards_of_weight) EXPECT_EQ(shards.size(), 1U) << n;
  const std::string plain =
      program.folder().write("plain.csv",
                             "M,N,K,dtype\n1,64,64,torch.bfloat16\n4,64,64,torch.bfloat16\n1,128,64,torch."
                             "bfloat16\n2,128,64,torch.bfloat16\n");
  for (int i = 1; i <= 2; ++i) {
    const auto result =
        program.run({"tune", "-i", plain, "--op", "a16w16", "-o", tuned(), "--libtype", "skinny", "--iters",
                     "1", "-q", "--m-range", "1:4", "--shard", std::to_string(i) + "/2"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_GT(text_lines(read_text(part(i, 2))).size(), 1U) << "a weight each";
  }
  const auto merged = merge(2);
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  std::string first = read_text(part(1, 2));
  std::ofstream(part(1, 2)) << first.substr(0, first.find('\n') + 1);
  std::filesystem::remove(tuned());
  expect_refused(merge(2), "without a row");
}

TEST_F(Shards, OneWithoutShapesAndOneWithoutRowsAreShardsToo) {
  for (int i = 1; i <= 3; ++i) {
    const auto result = program.run(tune_words({"--shard", std::to_string(i) + "/3"}, 1));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const bool is_empty = text_lines(read_text(part(i, 3))).size() == 1;
    EXPECT_EQ(result.out.find("has no shapes") != std::string::npos, is_empty) << result.out;
  }
  EXPECT_EQ(text_lines(read_text(part(3, 3))).size(), 1U) << "a header";
  EXPECT_EQ(merge(3).exit_code, 0);
  EXPECT_EQ(text_lines(read_text(tuned())).size(), 2U);
  for (const std::vector<std::string>& bad : std::vector<std::vector<std::string>>{
           {"--shard", "1/2", "-o", program.file("r.yaml")}, {"--shard", "1/2", "--compare"}, {"--list"}}) {
    std::vector<std::string> words = {"tune", "-m", "1", "-n", "64", "-k", "64"};
    words.insert(words.end(), bad.begin(), bad.end());
    EXPECT_EQ(program.run(words).exit_code, 2) << bad[0];
  }
}

}  // namespace
}  // namespace gemmtune::test::shards_test
