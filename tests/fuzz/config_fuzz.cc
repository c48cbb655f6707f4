// The configuration: any file and any flag gives a configuration that can be written and read
// again, or problems that name a cause and a cure.
//
// Input: one byte chooses the form (even: file; odd: flag), the rest is the text.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "control/config_file.h"
#include "control/port_flag.h"

namespace {

using namespace sluice::control;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "config_fuzz: %s\n", what);
  std::abort();
}

void read_file(std::string_view text) {
  const auto config = parse_config(text, "fuzz.toml");
  if (!config) {
    require(!config.error().empty(), "a refused file has a problem");
    for (const Problem& problem : config.error()) {
      require(!problem.where.empty() && !problem.cause.empty() && !problem.cure.empty(),
              "a problem has place, cause and cure");
    }
    return;
  }
  const std::string written = to_toml(*config);
  const auto again = parse_config(written, "again.toml");
  require(again.has_value(), "what is written can be read");
  require(to_toml(*again) == written, "what is read is what was written");
  Problems problems = check(*config);
  find_places(problems, text, "fuzz.toml");
}

void read_flags(std::string_view text) {
  Config config;
  for (const auto& key : config_keys()) (void)apply_flag(config, key, text);
  if (const auto port = parse_vhost_user_flag(text)) config.fabric.vhost_user = {*port};
  if (const auto port = parse_generator_flag(text)) config.fabric.generators = {*port};
  if (const auto port = parse_sink_flag(text)) config.fabric.sinks = {*port};
  if (const auto pair = parse_patch_flag(text)) config.fabric.patches = {*pair};
  // Bytes that are not UTF-8 are allowed in a path of a flag, but TOML cannot say them.
  (void)parse_config(to_toml(config), "again.toml");
  (void)check(config);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(data + 1, data + size);
  if (data[0] % 2 == 0) {
    read_file(text);
  } else {
    read_flags(text);
  }
  return 0;
}
