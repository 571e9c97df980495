// The main of a fuzz target in builds without libFuzzer (preset asan): runs every seed and a fixed
// number of mutations of them, the same ones each time, so that continuous integration feeds
// hostile bytes to every parser at the price of a unit test. Finding new paths is libFuzzer's
// (tools/fuzz.sh).
//
//   fuzz_json [SEED-FOLDER]      environment: SUBLET_FUZZ_ROUNDS (default 2000), at most 20 s
//
// A finding ends the program; the input is left as finding-NAME in the working folder.
#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kInputBytesMax = 64 * 1024;
constexpr auto kTimeMax = std::chrono::seconds(20);

std::string g_input;  // what runs now, for the report of a finding
char g_finding[256];

// Only calls that are safe in a signal handler.
void KeepInput() {
  const int file = open(g_finding, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file >= 0) {
    [[maybe_unused]] const ssize_t written = write(file, g_input.data(), g_input.size());
    close(file);
  }
}

void OnSignal(int number) {
  KeepInput();
  signal(number, SIG_DFL);
  raise(number);
}

// Pieces that parsers give a meaning to.
constexpr std::array<std::string_view, 24> kTokens = {
    "{",      "}",       "[",  "]",        "\"", ":",     ",",
    "null",   "\\u0000", "\n", "\r\n",     "-1", "1e999", "9223372036854775808",
    "%2e%2e", "/",       "..", "\xff\xfe", "&a", "*a",    "~1",
    "$",      "(",       "0"};

std::string Mutate(const std::vector<std::string>& seeds, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  std::string input = seeds[below(seeds.size())];
  for (std::size_t step = 1 + below(6); step > 0; --step) {
    const std::size_t at = below(input.size() + 1);
    const std::size_t length = std::min(input.size() - at, below(32));
    switch (below(7)) {
      case 0:
        if (at < input.size()) {
          input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        }
        break;
      case 1:
        if (at < input.size()) {
          input[at] = static_cast<char>(random());
        }
        break;
      case 2: input.erase(at, length); break;
      case 3: input.insert(at, input.substr(at, length)); break;
      case 4: input.insert(at, kTokens[below(kTokens.size())]); break;
      case 5: {
        const std::string& other = seeds[below(seeds.size())];
        input.insert(at, other.substr(below(other.size() + 1), below(64)));
        break;
      }
      default: input.resize(at); break;
    }
  }
  input.resize(std::min(input.size(), kInputBytesMax));
  return input;
}

void Run(std::string input) {
  g_input = std::move(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(g_input.data()), g_input.size());
}

std::vector<std::string> ReadSeeds(const char* folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = std::filesystem::path(argv[0]).filename();
  std::snprintf(g_finding, sizeof(g_finding), "finding-%s", name.c_str());
  __sanitizer_set_death_callback(KeepInput);
  for (const int number : {SIGABRT, SIGILL, SIGTRAP}) {
    signal(number, OnSignal);
  }
  std::vector<std::string> seeds = argc > 1 ? ReadSeeds(argv[1]) : std::vector<std::string>();
  if (argc > 1 && seeds.empty()) {
    std::fprintf(stderr, "%s: no seeds in %s\n", name.c_str(), argv[1]);
    return 1;
  }
  seeds.emplace_back();
  for (const std::string& seed : seeds) {
    Run(seed);
  }
  const char* wanted = std::getenv("SUBLET_FUZZ_ROUNDS");
  const long rounds = wanted != nullptr ? std::strtol(wanted, nullptr, 10) : 2000;
  const auto end = std::chrono::steady_clock::now() + kTimeMax;
  std::mt19937 random(1);
  long done = 0;
  while (done < rounds && std::chrono::steady_clock::now() < end) {
    Run(Mutate(seeds, random));
    ++done;
  }
  std::printf("%s: %zu seeds, %ld mutations\n%s: 1 passed, 0 failed\n", name.c_str(),
              seeds.size() - 1, done, name.c_str());
  return 0;
}
