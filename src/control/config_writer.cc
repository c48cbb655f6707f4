// Reads the bytes of a configuration file, and writes a configuration as TOML.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"
#include "control/config_file.h"
#include "control/keys.h"

namespace sluice::control {
namespace {

template <class T>
void write_ports(std::string& out, std::string_view table, const std::vector<T>& ports,
                 std::span<const Key<T>> keys) {
  for (T port : ports) {
    T defaults;
    out += fmt::format("\n[[{}]]\n", table);
    for (const auto& key : keys) {
      const std::string text = shown(key.slot(port));
      if (text.empty() || text == shown(key.slot(defaults))) continue;
      out += fmt::format("{} = {}\n", key.setting.name, text);
    }
  }
}

void write_section(std::string& out, std::string_view section, Config& config) {
  Config defaults;
  bool headed = section.empty();
  for (const auto& key : config_keys()) {
    if (key.setting.section != section) continue;
    const std::string text = shown(key.slot(config));
    if (text.empty() || text == shown(key.slot(defaults))) continue;
    if (!std::exchange(headed, true)) out += fmt::format("\n[{}]\n", section);
    out += fmt::format("{} = {}\n", key.setting.name, text);
  }
}

Problem unreadable(const std::string& path, int error) {
  return {path, std::strerror(error),
          error == ENOENT ? "give the path of a file that exists, or flags instead of a file"
                          : "give a file that can be read"};
}

}  // namespace

std::string to_toml(const Config& config) {
  Config copy = config;
  std::string out;
  write_section(out, "", copy);
  if (!copy.fabric.patches.empty()) {
    out += "patches = [";
    for (const auto& [first, second] : copy.fabric.patches) {
      out += fmt::format("{}[{}, {}]", out.ends_with('[') ? "" : ", ", in_quotes(first),
                         in_quotes(second));
    }
    out += "]\n";
  }
  write_section(out, "bridge", copy);
  write_section(out, "workers", copy);
  write_ports(out, "vhost_user", copy.fabric.vhost_user, vhost_user_keys());
  write_ports(out, "virtio_user", copy.fabric.virtio_user, virtio_user_keys());
  write_ports(out, "generator", copy.fabric.generators, generator_keys());
  write_ports(out, "sink", copy.fabric.sinks, sink_keys());
  return out;
}

std::expected<std::string, Problem> read_config_text(const std::string& path) {
  // Non-blocking, so that a FIFO in place of the file cannot hang the start.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return std::unexpected(unreadable(path, errno));
  std::string text;
  while (text.size() <= kConfigFileMax) {
    char chunk[4096];
    const ssize_t got = ::read(fd.get(), chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::unexpected(unreadable(path, errno));
    if (got == 0) return text;
    text.append(chunk, static_cast<std::size_t>(got));
  }
  return std::unexpected(Problem{path, "it is larger than 1 MiB", "give a configuration file"});
}

}  // namespace sluice::control
