#include "support/hip_compiler/clang_runtime.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <utility>

#include "backends/gpu/jit/device_files.h"
#include "base/file.h"
#include "support/code_folder.h"
#include "support/subprocess.h"
#include "support/temporary_folder.h"

namespace gemmtune::test {
namespace {

constexpr int default_version = 19;
constexpr int first_with_gfx950 = 20;
constexpr int newest_version = 30;

/// Its path; empty: it is not installed.
std::string find_tool(const std::string& name, int version) {
  std::istringstream folders(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = fmt::format("{}/{}-{}", folder, name, version);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

class CompiledOnly final : public gpu::Program {
 public:
  CompiledOnly(const CodeObject& object, std::size_t max_shared_bytes) : max_shared_bytes_(max_shared_bytes) {
    resources_.registers = object.registers;
    resources_.stack_bytes = object.scratch_bytes;
    resources_.static_shared_bytes = static_cast<std::size_t>(object.lds_bytes);
  }
  const gpu::Resources& resources() const override { return resources_; }
  const gpu::LoadedKernel& loaded() const override { return loaded_; }
  Status reserve_shared(std::size_t bytes) override {
    if (bytes + resources_.static_shared_bytes <= max_shared_bytes_) return {};
    return Status::unsupported("{} bytes of LDS, {} are there", bytes, max_shared_bytes_);
  }
  Status launch(const gpu::LaunchShape&, void**, Stream) const override {
    return Status::unsupported("compile-only device");
  }

 private:
  gpu::Resources resources_;
  gpu::LoadedKernel loaded_;  // none
  std::size_t max_shared_bytes_;
};

/// The number after "key:" in the metadata, which ends the listing; of several kernels the first.
int figure(const std::string& listing, const std::string& key) {
  const auto at = listing.find("." + key + ":", listing.rfind(".amdgpu_metadata"));
  return at == std::string::npos ? 0 : std::atoi(listing.c_str() + at + key.size() + 2);
}

void count_instructions(const std::string& listing, CodeObject& object) {
  std::istringstream lines(listing);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '\t') continue;
    std::istringstream words(line);
    std::string opcode;
    words >> opcode;
    for (const char* suffix : {"_e32", "_e64", "_sdwa", "_dpp"})
      if (opcode.ends_with(suffix)) opcode.resize(opcode.size() - std::string(suffix).size());
    ++object.instructions[opcode];
  }
}

}  // namespace

int CodeObject::count(const std::string& prefix) const {
  int sum = 0;
  for (auto at = instructions.lower_bound(prefix); at != instructions.end() && at->first.starts_with(prefix);
       ++at)
    sum += at->second;
  return sum;
}

int CodeObject::lds_read_bytes() const {
  int bytes = 0;
  for (const auto& [opcode, times] : instructions) {
    if (!opcode.starts_with("ds_read")) continue;
    const auto at = opcode.rfind("_b");
    if (at == std::string::npos) continue;
    bytes += times * std::atoi(opcode.c_str() + at + 2) / 8 * (opcode.starts_with("ds_read2") ? 2 : 1);
  }
  return bytes;
}

int ClangRuntime::version_for(const std::string& architecture) {
  const auto has = [](int version) { return !find_tool("clang++", version).empty(); };
  if (architecture != "gfx950") return has(default_version) ? default_version : 0;
  for (int version = newest_version; version >= first_with_gfx950; --version)
    if (has(version)) return version;
  return 0;
}

ClangRuntime::ClangRuntime(std::string architecture)
    : architecture_(std::move(architecture)), version_(version_for(architecture_)) {
  limits_.multiprocessors = architecture_ == "gfx90a" ? 110 : architecture_ == "gfx950" ? 256 : 304;
  limits_.registers_per_thread = 512;
  limits_.shared_bytes_per_block = architecture_ == "gfx950" ? 163840 : 65536;
  limits_.shared_bytes_per_multiprocessor = limits_.shared_bytes_per_block;
  limits_.cache_bytes = 4 << 20;
}

Result<CodeObject> ClangRuntime::compile(const gpu::Source& source) const {
  const TemporaryFolder folder;
  const std::string text = folder.write("kernel.hip", gpu::resolved_text(source.text));
  const std::string assembly = folder.file("kernel.s");
  std::vector<std::string> words{find_tool("clang++", version_),
                                 "-x",
                                 "hip",
                                 "--cuda-device-only",
                                 "-nogpulib",
                                 "-nogpuinc",
                                 "--no-gpu-bundle-output",
                                 "-std=c++17",
                                 "-O3",
                                 "--offload-arch=" + architecture_,
                                 "-include",
                                 GEMMTUNE_HIP_DEVICE_HEADER};
  for (const std::string& define : source.defines) words.push_back("-D" + define);
  words.insert(words.end(), {"-S", text, "-o", assembly});
  const SubprocessResult ran = run_program(words);
  if (ran.exit_code != 0)
    return Status::invalid("{} for {}: {}", source.name, architecture_, ran.err.substr(0, 3000));
  const Result<std::string> read = read_file(assembly);
  if (!read.ok()) return read.status();
  const std::string& listing = *read;
  GEMMTUNE_RETURN_IF_ERROR(leave_code(source, architecture_, listing));
  if (listing.find("#ASMSTART") != std::string::npos) {
    // The compiler does not read what the source has in the assembler's words.
    const SubprocessResult assembled =
        run_program({words.front(), "-x", "assembler", "--target=amdgcn-amd-amdhsa", "-mcpu=" + architecture_,
                     "-c", assembly, "-o", folder.file("kernel.o")});
    if (assembled.exit_code != 0)
      return Status::invalid("{} for {}: {}", source.name, architecture_, assembled.err.substr(0, 3000));
  }
  CodeObject object;
  object.registers = figure(listing, "vgpr_count");
  object.scalar_registers = figure(listing, "sgpr_count");
  object.spilled_registers = figure(listing, "vgpr_spill_count") + figure(listing, "sgpr_spill_count");
  object.spilled_scalar_registers = figure(listing, "sgpr_spill_count");
  object.scratch_bytes = figure(listing, "private_segment_fixed_size");
  object.lds_bytes = figure(listing, "group_segment_fixed_size");
  if (object.registers == 0)
    return Status::internal("no count of registers in the assembly: {}", listing.substr(0, 3000));
  count_instructions(listing, object);
  return object;
}

Result<std::shared_ptr<gpu::Program>> ClangRuntime::load(const gpu::Source& source) {
  auto [found, is_new] =
      objects_.try_emplace({source.kernel, source.text, source.defines}, Status::internal("not compiled"));
  if (is_new) {
    found->second = compile(source);
    ++compiled;
  }
  if (!found->second.ok()) return found->second.status();
  if (!source.kernel.ends_with("_reduce")) last = *found->second;
  auto program = std::make_shared<CompiledOnly>(*found->second, limits_.shared_bytes_per_block);
  GEMMTUNE_RETURN_IF_ERROR(program->resources().acceptable(source.name));
  return std::shared_ptr<gpu::Program>(std::move(program));
}

}  // namespace gemmtune::test
