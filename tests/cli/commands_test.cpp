// Help, version and the commands that tune nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* llama_like = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
  "num_hidden_layers": 3, "vocab_size": 320, "torch_dtype": "bfloat16"})";

class Commands : public ::testing::Test {
 protected:
  std::string model(const std::string& config) const {
    std::filesystem::create_directories(program.file("model"));
    program.folder().write("model/config.json", config);
    return program.file("model");
  }
  Json json_of(const SubprocessResult& result) const {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out);
  }

  static Json cpu_of(const Json& devices) {
    for (const Json& backend : devices["backends"]) {
      if (backend["name"] == "cpu") return backend;
    }
    return {};
  }

  Program program;
};

TEST_F(Commands, VersionAndHelp) {
  const auto version = program.run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out, "gemmtune " GEMMTUNE_VERSION "\n");
  const auto help = program.run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const std::string command : {"tune", "shapes", "lookup", "explain", "bench", "check", "devices"}) {
    EXPECT_THAT(help.out, HasSubstr("\n  " + command + " "));
    const auto own = program.run({command, "--help"});
    EXPECT_EQ(own.exit_code, 0) << command;
    EXPECT_THAT(own.out, HasSubstr("Examples:")) << command;
    EXPECT_THAT(own.out, HasSubstr("--json")) << command;
    EXPECT_EQ(own.err, "") << command;
  }
}

TEST_F(Commands, HelpOfTuneNamesEachOfItsFlags) {
  const std::string help = program.run({"tune", "--help-all"}).out;
  for (const std::string flag : {"--op",
                                 "--backend",
                                 "--device",
                                 "--threads",
                                 "--input",
                                 "--untune-file",
                                 "--gemm-size-file",
                                 "--model-dir",
                                 "--tp",
                                 "--nsets",
                                 "--batch-size",
                                 "--indtype",
                                 "--outdtype",
                                 "--limit",
                                 "--output",
                                 "--tune-file",
                                 "--tuned-file",
                                 "-o2",
                                 "--profile-file",
                                 "--csv-schema",
                                 "--sort",
                                 "--errRatio",
                                 "--batch",
                                 "--mp",
                                 "--timeout",
                                 "--shape-grouped",
                                 "--in-process",
                                 "--all",
                                 "--stale",
                                 "--warmup",
                                 "--iters",
                                 "--splitK",
                                 "--libtype",
                                 "--search",
                                 "--budget",
                                 "--prefer-ratio",
                                 "--cache",
                                 "--run-config",
                                 "--compare",
                                 "--update-improved",
                                 "--min-improvement-pct",
                                 "--verbose",
                                 "--strict",
                                 "--quiet"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
}

TEST_F(Commands, ShapesOfAModel) {
  const auto result = program.run(
      {"shapes", "--model_dir", model(llama_like), "--tp", "2", "--nsets", "1,16", "--batch_size", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("M,N,K"));
  // tokens x batch size, then out and in features of a rank: fused QKV, output, gate+up, down.
  for (const std::string shape : {"2,64,64,", "32,64,64,", "32,64,32,", "2,128,64,", "32,64,64,"}) {
    EXPECT_THAT(result.out, HasSubstr("\n" + shape));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("qkv")));
  EXPECT_THAT(program.run({"shapes", "--model_dir", model(llama_like), "--nsets", "1", "--layers"}).out,
              HasSubstr("layer"));
}

TEST_F(Commands, ShapesOfAServer) {
  const std::vector<std::string> shapes = {"shapes", "--model_dir", model(llama_like)};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), shapes.begin(), shapes.end());
    return program.run(more);
  };
  const auto vllm =
      with({"--for", "vllm", "--max-num-seqs", "4", "--max-num-batched-tokens", "48", "--layers"});
  EXPECT_EQ(vllm.exit_code, 0) << vllm.err;
  for (const std::string part : {"\n1,", "\n2,", "\n4,", "\n8,", "\n16,", "\n32,", "\n48,"}) {
    EXPECT_THAT(vllm.out, HasSubstr(part));
  }
  EXPECT_THAT(vllm.out, Not(HasSubstr("\n24,")));
  std::size_t heads = 0;
  for (std::size_t at = vllm.out.find("lm_head"); at != std::string::npos;
       at = vllm.out.find("lm_head", at + 1))
    ++heads;
  EXPECT_EQ(heads, 3U) << vllm.out;  // 1, 2 and 4 sequences

  for (const auto& [more, sentence] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--for", "tgi"}, "--for tgi: expected vllm or sglang"},
           {{"--for", "vllm", "--nsets", "1"}, "not with --nsets"},
           {{"--max-num-seqs", "4"}, "--max-num-seqs 4: needs --for vllm or --for sglang"},
           {{"--for", "sglang", "--speculative-tokens", "-1"}, "--speculative-tokens"}}) {
    const auto refused = with(more);
    EXPECT_EQ(refused.exit_code, 2) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr(sentence));
  }
}

TEST_F(Commands, ShapesTakeTheModelFromTheEnvironment) {
  SubprocessOptions options = program.options();
  options.environment["GTUNE_MODEL"] = model(llama_like);
  options.environment["GTUNE_TP"] = "2";
  const auto result = program.run({"shapes", "--nsets", "7"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\n7,64,32,"));
}

TEST_F(Commands, ShapesOfAModelByItsName) {
  SubprocessOptions options = program.options();
  options.environment["HF_HUB_CACHE"] = program.folder().path();
  const auto shipped = program.run({"shapes", "--model", "Llama-3.2-1B", "--nsets", "16"}, options);
  EXPECT_EQ(shipped.exit_code, 0) << shipped.err;
  EXPECT_THAT(shipped.out, HasSubstr("\n16,3072,2048,"));
  program.folder().write("models--org--Model/snapshots/1/config.json", llama_like);
  const auto cached = program.run({"shapes", "--model", "org/Model", "--nsets", "7"}, options);
  EXPECT_EQ(cached.exit_code, 0) << cached.err;
  EXPECT_THAT(cached.out, HasSubstr("\n7,128,64,"));
  const auto absent = program.run({"shapes", "--model", "org/Absent"}, options);
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.err, HasSubstr("hf download org/Absent config.json"));
}

constexpr const char* quantized_experts =
    R"({"model_type": "deepseek_v3", "hidden_size": 64, "intermediate_size": 128,
  "moe_intermediate_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
  "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 320, "torch_dtype": "bfloat16",
  "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";

TEST_F(Commands, ModelsThatCannotBeSplitSaySo) {
  const auto result = program.run({"shapes", "--model_dir", program.file("nowhere")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("nowhere"));
  const auto odd = program.run({"shapes", "--model_dir", model(llama_like), "--tp", "3"});
  EXPECT_EQ(odd.exit_code, 2) << odd.out;
  EXPECT_THAT(odd.err,
              HasSubstr("num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 128"));
}

TEST_F(Commands, ShapesOfSeveralOperationsAreApart) {
  const std::vector<std::string> shapes = {"shapes", "--model_dir", model(quantized_experts), "--nsets", "4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), shapes.begin(), shapes.end());
    return program.run(more);
  };
  const auto all = with({});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  for (const std::string part : {"# a16w16\n", "\n# a8w8_blockscale\n", "\n# fused_moe\n"}) {
    EXPECT_THAT(all.out, HasSubstr(part));
  }
  const auto one = with({"--op", "a8w8_blockscale", "--bpreshuffle"});
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_THAT(one.err, HasSubstr("no row of a8w8_blockscale; there are 2 rows of a16w16, 4 of "
                                 "a8w8_blockscale_bpreshuffle, 1 of fused_moe"));
  EXPECT_THAT(with({"--op", "a8w8_blockscale"}).out, Not(HasSubstr("#")));
  const Json json = json_of(with({"--op", "fmoe", "--json"}));
  ASSERT_EQ(json["shapes"].size(), 1U);
  EXPECT_EQ(json["shapes"][0]["operation"], "fused_moe");
  EXPECT_EQ(json["shapes"][0]["calls"], 2);
}

TEST_F(Commands, ShapesOfSeveralOperationsGoIntoAFolder) {
  const std::vector<std::string> shapes = {"shapes",  "--model_dir", model(quantized_experts),
                                           "--nsets", "4",           "-o"};
  const auto to = [&](const std::string& output) {
    auto words = shapes;
    words.push_back(output);
    return program.run(words);
  };
  const auto file = to(program.file("out.csv"));
  EXPECT_EQ(file.exit_code, 2);
  EXPECT_THAT(
      file.err,
      HasSubstr("there are 2 rows of a16w16, 4 of a8w8_blockscale, 1 of fused_moe: give --op, or a folder"));
  EXPECT_FALSE(std::filesystem::exists(program.file("out.csv")));
  const auto folder = to(program.file("new/lists/"));
  EXPECT_EQ(folder.exit_code, 0) << folder.err;
  for (const std::string name :
       {"bf16_untuned_gemm.csv", "a8w8_blockscale_untuned_gemm.csv", "untuned_fmoe.csv"}) {
    EXPECT_TRUE(std::filesystem::exists(program.file("new/lists/" + name))) << name;
    EXPECT_THAT(folder.err, HasSubstr(name));
  }
  EXPECT_EQ(to(program.file("new/lists")).exit_code, 0);  // one that is there needs no slash
}

TEST_F(Commands, ShapesOfAFileAreListedOnce) {
  const std::string path =
      program.folder().write("shapes.csv",
                             "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
                             "1,64,32,False,torch.bfloat16,torch.bfloat16,False,False\n"
                             "1,64,32,False,torch.bfloat16,torch.bfloat16,False,False\n");
  const Json json = json_of(program.run({"shapes", "-i", path, "--json"}));
  ASSERT_EQ(json["shapes"].size(), 1U);
  EXPECT_EQ(json["shapes"][0]["calls"], 2);
  const auto written = program.run(
      {"shapes", "-i", path, "-o", program.file("out.csv"), "--indtype", "f32", "--outdtype", "f32"});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(written.out, "");
  EXPECT_THAT(read_text(program.file("out.csv")), HasSubstr("torch.float32,torch.float32"));
}

TEST_F(Commands, ShapesFromStandardInput) {
  SubprocessOptions options = program.options();
  options.input =
      "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n5,64,32,False,torch.bfloat16,torch.bfloat16,False,"
      "False\n";
  EXPECT_THAT(program.run({"shapes", "-i", "-"}, options).out, HasSubstr("\n5,64,32,"));
}

TEST_F(Commands, DevicesNamesBackendsAndLibraries) {
  const Json json = json_of(program.run({"devices", "--json"}));
  const Json cpu = cpu_of(json);
  EXPECT_EQ(cpu["available"], true);
  ASSERT_EQ(cpu["devices"].size(), 1U) << json;
  EXPECT_FALSE(cpu["devices"][0]["libraries"].empty());
  for (const Json& backend : json["backends"]) {
    EXPECT_NE(backend["available"].get<bool>(), backend["devices"].empty()) << backend;
    EXPECT_EQ(backend["why"].get<std::string>().empty(), backend["available"].get<bool>()) << backend;
  }
  EXPECT_THAT(program.run({"devices"}).out, HasSubstr("cpu"));
}

TEST_F(Commands, TheInstructionSetCanBeCapped) {
  SubprocessOptions options = program.options();
  options.environment["GEMMTUNE_CPU_ISA"] = "scalar";
  const Json json = json_of(program.run({"devices", "--json"}, options));
  EXPECT_EQ(cpu_of(json)["devices"][0]["gfx"], "x86-scalar");
}

TEST_F(Commands, ThreadsArePartOfTheDevice) {
  const Json json = json_of(program.run({"devices", "--json", "--threads", "1"}));
  EXPECT_EQ(cpu_of(json)["devices"][0]["cu_num"], 1);
}

TEST_F(Commands, ExplainListsFamiliesAndReasons) {
  const Json json =
      json_of(program.run({"explain", "-m", "3", "-n", "64", "-k", "64", "--indtype", "f16", "--json"}));
  bool tiled_takes = false;
  for (const Json& family : json["families"]) {
    EXPECT_TRUE(family["takes"].get<bool>() || !family["why"].get<std::string>().empty());
    if (family["name"] == "tiled") tiled_takes = family["takes"];
  }
  EXPECT_TRUE(tiled_takes);
  EXPECT_TRUE(json["fallback"].is_string());
}

TEST_F(Commands, ExplainPrintsASpace) {
  const auto result = program.run({"explain", "-m", "3", "-n", "64", "-k", "64", "--space", "tiled"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("space of tiled: "));
  const Json json =
      json_of(program.run({"explain", "-m", "3", "-n", "64", "-k", "64", "--space", "tiled", "--json"}));
  EXPECT_GE(json["space"]["points"].get<std::int64_t>(), json["space"]["allowed"].get<std::int64_t>());
  EXPECT_GT(json["space"]["allowed"].get<std::int64_t>(), 0);
  EXPECT_EQ(program.run({"explain", "-m", "3", "-n", "64", "-k", "64", "--space", "fancy"}).exit_code, 2);
}

TEST_F(Commands, ColumnMajorOperandsAreTakenOrRefusedWithReasons) {
  const std::vector<std::string> size = {"explain", "-m", "3", "-n", "64", "-k", "64", "--json"};
  const auto explained = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all = size;
    all.insert(all.end(), words.begin(), words.end());
    return json_of(program.run(all));
  };
  for (const auto& [words, orders, refusal] :
       {std::tuple{std::vector<std::string>{"-col_a"}, "x_order=N", "operand order: column-major x"},
        std::tuple{std::vector<std::string>{"--w_order", "N"}, "w_order=N", "operand order: column-major w"},
        std::tuple{std::vector<std::string>{"-col_a", "--w-order", "N"}, "x_order=N w_order=N",
                   "operand order: column-major x and w"}}) {
    const Json json = explained(words);
    EXPECT_THAT(json["problem"].get<std::string>(), HasSubstr(orders));
    for (const Json& family : json["families"]) {
      if (family["name"] == "tiled" || family["name"] == "reference") {
        EXPECT_TRUE(family["takes"].get<bool>());
      }
      if (family["name"] != "skinny") continue;
      EXPECT_FALSE(family["takes"].get<bool>());
      EXPECT_THAT(family["why"].get<std::string>(), HasSubstr(refusal));
    }
  }
  EXPECT_THAT(explained({"-col_b"})["problem"].get<std::string>(), Not(HasSubstr("order")));
}

TEST_F(Commands, OrdersThatContradictEachOtherAreErrors) {
  const auto error = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"explain", "-m", "3", "-n", "64", "-k", "64"};
    all.insert(all.end(), words.begin(), words.end());
    const auto result = program.run(all);
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  EXPECT_THAT(error({"-col_a", "--x_order", "T"}), HasSubstr("--x_order T and -col_a contradict each other"));
  EXPECT_THAT(error({"-col_b", "--w_order", "N"}), HasSubstr("--w_order N and -col_b contradict each other"));
  EXPECT_THAT(error({"--w_order", "C"}),
              HasSubstr("--w_order C: expected T (row-major) or N (column-major)"));
  EXPECT_THAT(error({"--w_order", "N", "--op", "a8w8"}), HasSubstr("with a16w16 only"));
}

TEST_F(Commands, CheckVerifiesAProblemWithOrders) {
  const auto result =
      program.run({"check", "--problem", "a16w16 m=9 n=65 k=70 x=bf16 w=bf16 y=bf16 x_order=N w_order=N",
                   "--libtype", "tiled", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("x_order=N w_order=N"));
  EXPECT_THAT(result.out, HasSubstr("\"right\""));
}

}  // namespace
}  // namespace gemmtune::test
