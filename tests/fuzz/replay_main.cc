// main() for a fuzz target without libFuzzer: replays the stored corpus, then pseudo-random inputs
// from a fixed seed.
//
// Use: <target> [CORPUS_DIRECTORY] [RANDOM_INPUTS]
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

constexpr int kDefaultRandomInputs = 3000;
// Most parsers decide within the first bytes, so short inputs are drawn far more often than long
// ones.
constexpr std::array<std::size_t, 6> kLengthLimits = {8, 32, 64, 256, 1024, 4096};

// An exact copy on the heap, so that a read past the end is one that AddressSanitizer sees.
void run(const Input& input) {
  const Input exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

std::vector<Input> read_corpus(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Input> inputs;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return inputs;
}

Input random_bytes(std::mt19937_64& random) {
  const std::size_t limit = kLengthLimits[random() % kLengthLimits.size()];
  Input input(random() % (limit + 1));
  // Half of the inputs favour small numbers: lengths, counts and opcodes are small in all our
  // formats.
  const bool small = random() % 2 == 0;
  for (auto& byte : input) byte = static_cast<std::uint8_t>(small ? random() % 8 : random());
  return input;
}

// A stored input with a few bytes changed, perhaps cut: reaches depths that random bytes alone
// never do.
Input mutated(const Input& seed, std::mt19937_64& random) {
  Input input = seed;
  if (random() % 4 == 0) input.resize(random() % (input.size() + 1));
  if (input.empty()) return input;
  const std::size_t changes = 1 + random() % 8;
  for (std::size_t i = 0; i < changes; ++i) {
    input[random() % input.size()] = static_cast<std::uint8_t>(random());
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Input> corpus;
  if (argc > 1 && std::filesystem::is_directory(argv[1])) corpus = read_corpus(argv[1]);
  const int random_inputs = argc > 2 ? std::atoi(argv[2]) : kDefaultRandomInputs;

  for (const Input& input : corpus) run(input);
  std::mt19937_64 random(20240501);
  for (int i = 0; i < random_inputs; ++i) {
    const bool mutate = !corpus.empty() && random() % 2 == 0;
    run(mutate ? mutated(corpus[random() % corpus.size()], random) : random_bytes(random));
  }
  std::printf("%zu stored inputs, %d random inputs\n", corpus.size(), random_inputs);
  return 0;
}
