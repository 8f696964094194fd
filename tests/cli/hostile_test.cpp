// Hostile use of the command line: no words, files or environments end the program by a signal or hang it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <sstream>
#include <thread>

#include "base/file_lock.h"
#include "cli/program.h"

namespace gemmtune::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

constexpr const char* key_header = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n";
constexpr const char* shape_row = "3,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n";
constexpr const char* tuned_header =
    "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,"
    "tflops,bw\n";

std::string tuned_row(const std::string& kernel, int m = 3) {
  return "gfx942,304," + std::to_string(m) +
         ",64,64,False,torch.bfloat16,torch.bfloat16,False,False,asm,0,0,5.0," + kernel + ",0.0,0.01,0.01\n";
}

bool is_soak() { return std::getenv("GEMMTUNE_SOAK") != nullptr; }

/// Runs with a limit of time: `timeout` kills what hangs, which is exit code 137 then.
class Hostile : public ::testing::Test {
 protected:
  SubprocessOptions options() const {
    SubprocessOptions options = program.options();
    options.environment["GEMMTUNE_CACHE_DIR"] = program.file("cache");
    options.environment["XDG_RUNTIME_DIR"] = program.folder().path();
    return options;
  }
  SubprocessResult run(const Words& words, int seconds = 120) const { return run(words, options(), seconds); }
  SubprocessResult run(const Words& words, const SubprocessOptions& options, int seconds = 120) const {
    Words all{"/usr/bin/timeout", "-s", "KILL", std::to_string(seconds), GEMMTUNE_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    return run_program(all, options);
  }
  static std::string text_of(const Words& words) {
    std::string text;
    for (const std::string& word : words) text += " '" + word.substr(0, 60) + "'";
    return text;
  }
  /// Ended by itself, with one of its exit codes, and nothing that a terminal obeys.
  static void expect_civil(const SubprocessResult& result, const std::string& what) {
    EXPECT_EQ(result.signal, 0) << what;
    EXPECT_THAT(result.exit_code, AnyOf(0, 1, 2)) << what << '\n' << result.err;
    const auto obeyed = [](char c) {
      return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    };
    EXPECT_TRUE(std::none_of(result.err.begin(), result.err.end(), obeyed)) << what;
    EXPECT_TRUE(std::none_of(result.out.begin(), result.out.end(), obeyed)) << what;
  }
  std::string shapes() const {
    return program.folder().write("shapes.csv", std::string(key_header) + shape_row);
  }

  Program program;
};

// ---------------------------------------------------------------- words

const Words& hostile_values() {
  static const Words values = {"",
                               "=",
                               "=x",
                               "-",
                               "--",
                               "---",
                               " ",
                               ",",
                               ":",
                               "nan",
                               "inf",
                               "-inf",
                               "1e999",
                               "-1",
                               "0",
                               "1.5",
                               "4294967297",
                               "9223372036854775808",
                               "0x10",
                               "1,,2",
                               "%s%n%s",
                               "/dev/null",
                               ".",
                               "/",
                               "\x1b[2J\x07",
                               "\xff\xfe\x80",
                               "\xe2\x80\xae"
                               "gpj",
                               std::string(100'000, 'A'),
                               std::string(3000, '/')};
  return values;
}

/// "tune", "shapes", … as --help lists them.
Words commands_of(const std::string& help) {
  Words commands;
  std::istringstream lines(help.substr(help.find("Commands:")));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with("  ")) {
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    if (name == "help") break;  // and what else prints without options
    if (!name.empty()) commands.push_back(name);
  }
  return commands;
}

/// Every spelling of every option in a command's help.
Words options_of(const std::string& help) {
  Words options;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ") || line.starts_with("   ")) continue;
    std::istringstream names(line.substr(2, line.find("  ", 2) - 2));
    for (std::string name; names >> name;) {
      if (name.ends_with(',')) name.pop_back();
      if (name.starts_with("-")) options.push_back(name);
    }
  }
  return options;
}

TEST_F(Hostile, EmptyWordsAndWordsThatBeginWithAnEqualsSign) {
  const std::string input = shapes();
  for (const std::string word : {"", "=", "=x", "-", "--", "---"}) {
    for (const Words& words :
         {Words{word}, Words{"tune", word}, Words{"tune", "-i", word}, Words{"lookup", "-m", word},
          Words{"shapes", "-i", input, word}, Words{"devices", word}, Words{"explain", "--op", word}}) {
      expect_civil(run(words), text_of(words));
    }
  }
  const auto unset = run({"tune", "-i", ""});
  EXPECT_EQ(unset.exit_code, 2);
  EXPECT_THAT(unset.err, HasSubstr("no shapes"));
}

/// Each option of each command with each hostile value, as two words and as one. A sample of 5 seconds, or as
/// many as GEMMTUNE_SAMPLE_SECONDS says, and of at least 50 calls; all of them with GEMMTUNE_SOAK=1.
TEST_F(Hostile, OptionsWithAnyValue) {
  const auto help = run({"--help"});
  ASSERT_EQ(help.exit_code, 0);
  std::vector<Words> calls;
  for (const std::string& command : commands_of(help.out)) {
    const auto own = run({command, "--help-all"});
    ASSERT_EQ(own.exit_code, 0) << command;
    const Words options = options_of(own.out);
    ASSERT_GE(options.size(), 2U) << command << own.out;
    Words begin = {command};
    if (command == "hunt") begin.insert(begin.end(), {"--budget", "0.1"});  // it needs no other word to work
    const auto add = [&](const Words& words) {
      calls.push_back(begin);
      calls.back().insert(calls.back().end(), words.begin(), words.end());
    };
    for (const std::string& value : hostile_values()) {
      add({value});
      add({value, value});
      for (const std::string& option : options) {
        if (option == "-h" || option == "--help") continue;
        add({option, value});
        add({option + "=" + value});
        add({"file", option, value});
      }
    }
  }
  ASSERT_GT(calls.size(), 5000U);
  std::mt19937 random(20261122);  // the same sample everywhere
  std::shuffle(calls.begin(), calls.end(), random);
  const char* seconds = std::getenv("GEMMTUNE_SAMPLE_SECONDS");
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(seconds != nullptr ? std::stoi(seconds) : 5);
  std::size_t done = 0;
  for (const Words& words : calls) {
    if (!is_soak() && done >= 50 && std::chrono::steady_clock::now() > end) break;
    expect_civil(run(words), text_of(words));
    ++done;
  }
  RecordProperty("calls", static_cast<int>(done));
  RecordProperty("of", static_cast<int>(calls.size()));
}

TEST_F(Hostile, NumbersOfVariables) {
  for (const char* name :
       {"GEMMTUNE_NUM_THREADS", "GEMMTUNE_ONLINE_BUDGET_MS", "GTUNE_TP", "GTUNE_BATCH_SIZE"}) {
    for (const char* value : {"abc", "4294967297", "-1", "1.5", "nan", "1e3", "99999999999999999999"}) {
      SubprocessOptions environment = options();
      environment.environment[name] = value;
      environment.environment["GTUNE_MODEL"] = program.file("no-model");
      for (const Words& words : {Words{"explain", "-m", "3", "-n", "64", "-k", "64"}, Words{"shapes"}}) {
        expect_civil(run(words, environment), std::string(name) + "=" + value + text_of(words));
      }
    }
  }
}

// ---------------------------------------------------------------- terminals

TEST_F(Hostile, NamesFromFilesAreSpelledNotObeyed) {
  const std::string evil =
      "asm_\x1b[31m\x1b]0;title\x07_\xc2\x9b"
      "2J_\xe2\x80\xae"
      "x";
  const std::string tuned = program.folder().write("tuned.csv", tuned_header + tuned_row(evil));
  const std::string other = program.folder().write("other.csv", tuned_header + tuned_row("plain"));
  const std::string broken =
      program.folder().write("broken.csv", tuned_header + tuned_row(evil) + "gfx942,\x1b[5m,3\n");
  for (const Words& words :
       {Words{"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", tuned, "--gfx", "gfx942", "--cu_num",
              "304"},
        Words{"audit", tuned}, Words{"audit", broken}, Words{"diff", tuned, other}, Words{"check", tuned},
        Words{"tune", "-m", "3", "-n", "64", "-k", "64", "-o", program.file("\x1b[31m.csv"), "--libtype",
              evil},
        Words{"shapes", "-i", program.file("\x1b[2J.csv")}, Words{evil}, Words{"tune", "--" + evil}}) {
    const auto result = run(words);
    expect_civil(result, text_of(words) + result.out + result.err);
  }
  const auto looked_up = run(
      {"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", tuned, "--gfx", "gfx942", "--cu_num", "304"});
  EXPECT_THAT(looked_up.out, HasSubstr("asm_\\x1b[31m\\x1b]0;title\\x07_\\u009b2J_\\u202ex"));
  // A file's bytes stay what they are.
  const std::string merged = program.file("merged.csv");
  EXPECT_EQ(run({"merge", tuned, "-o", merged}).exit_code, 0);
  EXPECT_THAT(read_text(merged), HasSubstr(evil));
  EXPECT_THAT(run({"merge", tuned}).out, HasSubstr(evil));  // standard output is a file here
}

// ---------------------------------------------------------------- outputs

class HostileOutput : public Hostile {
 protected:
  Words tune(Words more) const {
    Words words{"tune", "-i",       shapes(), "--libtype",       "tiled", "--iters",
                "1",    "--budget", "1",      "--confirmations", "1",     "-q"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void expect_refused(const Words& words, const std::string& part) const {
    const auto result = run(words, 60);
    EXPECT_EQ(result.exit_code, 2) << text_of(words) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr(part)) << text_of(words);
  }
};

TEST_F(HostileOutput, StandardOutputIsNoTunedFile) {
  expect_refused(tune({"-o", "-"}), "-o -");
  expect_refused(tune({"-o", "-:" + program.file("b.csv")}), "-o -");
  expect_refused(tune({"-o", program.file("a.csv"), "-o2", "-"}), "-o2 -");
  expect_refused(tune({"-o", program.file("a.csv"), "--record", "-"}), "--record -");
  expect_refused(tune({"-o", program.file("a.csv"), "--events", "-"}), "--events -");
  EXPECT_FALSE(fs::exists(program.file("-")));
  for (const Words& words : {Words{"shapes", "-i", shapes(), "-o", "-"}, Words{"shapes", "-i", shapes()}}) {
    const auto listed = run(words);
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    EXPECT_THAT(listed.out, HasSubstr("3,64,64"));
  }
  EXPECT_FALSE(fs::exists(program.file("-")));
}

TEST_F(HostileOutput, ADanglingLinkIsFollowed) {
  fs::create_directory(program.file("data"));
  fs::create_symlink("data/tuned.csv", program.file("tuned.csv"));
  const auto tuned = run(tune({"-o", program.file("tuned.csv")}), 60);
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_TRUE(fs::is_symlink(program.file("tuned.csv")));
  EXPECT_THAT(read_text(program.file("data/tuned.csv")), HasSubstr(",3,64,64,"));
  fs::create_symlink("gone/tuned.csv", program.file("nowhere.csv"));
  expect_refused(tune({"-o", program.file("nowhere.csv")}), "nowhere.csv");
}

TEST_F(HostileOutput, LongPathsAndNamesAreRefusedBeforeTuning) {
  std::string folder = program.folder().path();
  while (folder.size() < 520) folder += "/" + std::string(100, 'd');
  fs::create_directories(folder);
  expect_refused(tune({"-o", folder + "/tuned.csv"}), "SQLite takes at most");
  expect_refused(tune({"-o", program.file(std::string(250, 'n'))}), "the name has 250 bytes");
  EXPECT_EQ(run({"shapes", "-i", shapes(), "-o", folder + "/shapes.csv"}).exit_code, 0);
}

TEST_F(HostileOutput, ATunedFileIsNotReplacedByAListOfShapes) {
  const std::string tuned = program.folder().write("tuned.csv", tuned_header + tuned_row("a"));
  expect_refused({"shapes", "-i", shapes(), "-o", tuned}, "is not a list of shapes");
  expect_refused({"convert", shapes(), "--to", "untuned", "-o", tuned}, "is a tuned file");
  EXPECT_EQ(read_text(tuned), tuned_header + tuned_row("a"));
  // Lists of shapes are replaced.
  const std::string list =
      program.folder().write("list.csv", std::string(key_header) + "9,9,9,False,,,False,False\n");
  EXPECT_EQ(run({"shapes", "-i", shapes(), "-o", list}).exit_code, 0);
}

TEST_F(HostileOutput, EachOutputIsAFileOfItsOwn) {
  const std::string output = program.file("tuned.csv");
  for (const std::string option : {"-o2", "--record", "--events"}) {
    expect_refused(tune({"-o", output, option, output}), "is -o too");
    expect_refused(tune({"-o", output, option, "./tuned.csv"}), "is -o too");
    expect_refused(tune({"-o", output, option, output + ".journal"}), "is the journal of -o too");
    expect_refused(tune({"-o", output, option, output + ".env.json"}), "is the environments of -o too");
    expect_refused(tune({"-o", output, option, shapes()}), "is -i too");
  }
  expect_refused(tune({"-o", output, "--record", program.file("r"), "--events", program.file("r")}),
                 "is --events too");
  const std::string list = program.folder().write("events.txt", "not an event\n");
  expect_refused(tune({"-o", output, "--events", list}), "events.txt:1");
  EXPECT_EQ(read_text(list), "not an event\n");
  fs::create_hard_link(shapes(), program.file("hard.csv"));
  expect_refused(tune({"-o", output, "--events", program.file("hard.csv")}), "is -i too");
  EXPECT_FALSE(fs::exists(output));
}

TEST_F(HostileOutput, TheUmaskHolds) {
  const mode_t before = ::umask(0077);
  const auto tuned = run(tune({"-o", program.file("tuned.csv")}), 60);
  ::umask(before);
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  for (const std::string name : {"tuned.csv", "tuned.csv.env.json", "tuned.csv.journal", "tuned.csv.lock"}) {
    struct stat information {};
    ASSERT_EQ(::stat(program.file(name).c_str(), &information), 0) << name;
    EXPECT_EQ(information.st_mode & 0077, 0U) << name;
  }
}

TEST_F(HostileOutput, WithoutAHomeNothingIsReadOrWrittenInTheWorkingFolder) {
  SubprocessOptions environment = options();
  for (const char* name : {"HOME", "GEMMTUNE_CONFIG_DIR", "XDG_CONFIG_HOME"})
    environment.environment[name] = "";
  for (const Words& words :
       {Words{"lookup", "-m", "3", "-n", "64", "-k", "64"}, Words{"tune"}, Words{"cache", "list"}}) {
    expect_civil(run(words, environment), text_of(words));
  }
  EXPECT_FALSE(fs::exists(program.file(".gemmtune")));
}

TEST_F(HostileOutput, CompareWithNothingToDoSaysSo) {
  const std::string output = program.file("tuned.csv");
  ASSERT_EQ(run(tune({"-o", output}), 60).exit_code, 0);
  const auto compared = run(tune({"-o", output, "--compare"}), 60);
  EXPECT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_THAT(compared.out, HasSubstr("nothing to do: the shape is in " + output + " already (use --all"));
  const auto json = run(tune({"-o", output, "--compare", "--json"}), 60);
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_THAT(json.out, HasSubstr("tune --compare"));
}

// ---------------------------------------------------------------- locks

/// A wait for a lock of this test's process: who has it is said, and a signal ends it.
TEST_F(HostileOutput, AWaitForALockIsSaidAndEndsWithCtrlC) {
  const std::string output = program.file("tuned.csv");
  const std::string holder = "waiting for process " + std::to_string(::getpid());
  for (const std::string name : {"tuned.csv.lock", "tuned.csv.journal.lock"}) {
    const auto lock = FileLock::acquire(program.file(name));
    ASSERT_TRUE(lock.ok()) << lock.message();
    Subprocess waiting(program.words(tune({"-o", output})), options());
    ASSERT_TRUE(waiting.wait_until_said(name + ": " + holder)) << name;
    waiting.send(SIGINT);
    const auto result = waiting.wait();
    EXPECT_TRUE(result.exit_code == 130 || result.signal == SIGINT) << name << result.exit_code << result.err;
    EXPECT_THAT(result.err, HasSubstr(name + ": " + holder)) << name;
  }
  const std::string tuned = program.folder().write("a.csv", tuned_header + tuned_row("a"));
  const auto lock = FileLock::acquire(program.file("merged.csv.lock"));
  Subprocess waiting(program.words({"merge", tuned, "-o", program.file("merged.csv")}), options());
  ASSERT_TRUE(waiting.wait_until_said(holder));
  waiting.send(SIGTERM);
  const auto result = waiting.wait();
  EXPECT_EQ(result.signal, SIGTERM);
  EXPECT_THAT(result.err, HasSubstr(holder));
}

TEST_F(HostileOutput, ATimingLockThatCannotBeHadIsSaid) {
  fs::create_directory(program.file("elsewhere"));
  fs::create_symlink("elsewhere", program.file("gemmtune"));  // $XDG_RUNTIME_DIR/gemmtune
  const auto tuned = run(tune({"-o", program.file("tuned.csv")}), 60);
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.err, HasSubstr("no timing lock"));
  EXPECT_TRUE(fs::is_empty(program.file("elsewhere")));
}

TEST_F(HostileOutput, TheHolderOfTheTimingLockIsSaid) {
  fs::create_directory(program.file("gemmtune"));
  fs::permissions(program.file("gemmtune"), fs::perms::owner_all);
  const auto lock = FileLock::acquire(program.file("gemmtune/timing.lock"));
  ASSERT_TRUE(lock.ok()) << lock.message();
  // Without a budget: the wait costs none, but what comes in front of it does.
  const Words words{"tune",  "-i",      shapes(), "--libtype",
                    "tiled", "--iters", "1",      "--confirmations",
                    "1",     "-q",      "-o",     program.file("tuned.csv")};
  Subprocess waiting(program.words(words), options());
  ASSERT_TRUE(waiting.wait_until_said("timing.lock: waiting for process"));
  waiting.send(SIGINT);
  const auto result = waiting.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("timing.lock: waiting for process " + std::to_string(::getpid())));
}

// ---------------------------------------------------------------- environment

/// libgomp pins the thread that loads it; the worker inherited that and found one core.
TEST_F(HostileOutput, SettingsOfOpenMpDoNotTakeTheCoresAway) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "needs two cores";
  for (const auto& [name, value] :
       {std::pair("OMP_PROC_BIND", "true"), {"OMP_PLACES", "cores"}, {"GOMP_CPU_AFFINITY", "0"}}) {
    SubprocessOptions environment = options();
    environment.environment[name] = value;
    const auto tuned = run(tune({"-o", program.file(std::string(name) + ".csv")}), environment, 60);
    EXPECT_EQ(tuned.exit_code, 0) << name << tuned.out << tuned.err;
    EXPECT_THAT(tuned.out, HasSubstr("0 failed")) << name;
  }
}

}  // namespace
}  // namespace gemmtune::test
