// A fuzz target with a bug on purpose. The fuzz stage of the test run fails unless libFuzzer finds
// it, so that the silence of the true targets means something.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint32_t word = 0;
  if (size >= sizeof(word) + 1) {
    std::memcpy(&word, data, sizeof(word));
    if (word == 0x51C7A9E3 && data[sizeof(word)] > 200) {
      std::fputs("the canary was found\n", stderr);
      std::abort();
    }
  }
  return 0;
}
