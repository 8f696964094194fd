// Files compiled for an instruction set must not offer a symbol that the linker may choose for everybody: no
// weak, no unique, no vague symbol.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  char buffer[4096];
  while (pipe != nullptr && std::fgets(buffer, sizeof(buffer), pipe.get()) != nullptr) text += buffer;
  return text;
}

/// Lines of nm whose type is W, w, V, v or u and that define something.
std::string weak_symbols(const std::string& listing) {
  std::istringstream lines(listing);
  std::string weak;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string address;
    std::string type;
    std::string name;
    words >> address >> type >> name;
    // A pointer to the exception personality, in builds with sanitizers: no code.
    if (name.rfind("DW.ref.", 0) == 0) continue;
    if (type.size() == 1 && std::string("WwVvu").find(type) != std::string::npos) weak += line + "\n";
  }
  return weak;
}

TEST(IsaObjects, EmitNoWeakSymbols) {
  std::ifstream list(GEMMTUNE_ISA_OBJECTS);
  ASSERT_TRUE(list) << GEMMTUNE_ISA_OBJECTS;
  int objects = 0;
  for (std::string object; std::getline(list, object);) {
    if (object.empty()) continue;
    ++objects;
    const std::string listing = output_of("nm -C '" + object + "'");
    EXPECT_NE(listing.find("_kernels"), std::string::npos) << object << " has no table: was nm run?";
    EXPECT_EQ(weak_symbols(listing), "") << object;
  }
  EXPECT_GE(objects, 1);
}

TEST(IsaObjects, TheReaderSeesWeakSymbols) {
  EXPECT_EQ(
      weak_symbols("0000000000000000 W gemmtune::f(int)\n0000000000000010 T g\n                 U memcpy\n"),
      "0000000000000000 W gemmtune::f(int)\n");
}

}  // namespace
