// The documentation states what the tables of keys and requests state, word for word.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "control/config_file.h"
#include "control/keys.h"
#include "control/requests.h"
#include "control/version.h"

namespace sluice::control {
namespace {

std::string read_file(const std::string& name) {
  const auto root = std::filesystem::path(__FILE__).parent_path() / "../../..";
  std::ifstream stream(root / name, std::ios::binary);
  EXPECT_TRUE(stream.good()) << name;
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// A row of the tables of docs/configuration.md.
template <class T>
std::string row_of(const Key<T>& key) {
  T defaults;
  const Slot slot = key.slot(defaults);
  const std::string standard = shown(slot);
  const std::string flag =
      key.setting.flag.empty() ? "" : fmt::format(" `--{}` |", key.setting.flag);
  return fmt::format("| `{}` |{} {} | {} | {} |", key.setting.name, flag,
                     expected(key.setting, slot, Form::kFile),
                     key.setting.name == "path" ? "required"
                     : standard.empty()         ? "absent"
                                                : fmt::format("`{}`", standard),
                     key.setting.help);
}

template <class T>
void expect_rows(const std::string& page, std::span<const Key<T>> keys) {
  for (const auto& key : keys) {
    EXPECT_TRUE(contains(page, row_of(key))) << "docs/configuration.md lacks the row\n"
                                             << row_of(key);
  }
}

TEST(Documentation, ThePageOnTheConfigurationHasARowForEachKey) {
  const std::string page = read_file("docs/configuration.md");
  expect_rows(page, config_keys());
  expect_rows(page, vhost_user_keys());
  expect_rows(page, virtio_user_keys());
  expect_rows(page, generator_keys());
  expect_rows(page, sink_keys());
}

TEST(Documentation, TheManualOfTheFileNamesEachKey) {
  const std::string manual = read_file("docs/man/sluice.toml.5");
  const auto expect_named = [&](std::string_view name) {
    EXPECT_TRUE(contains(manual, fmt::format(".BR {} ", name)) ||
                contains(manual, fmt::format(".B {}\n", name)) ||
                contains(manual, fmt::format(".BI {} ", name)))
        << "sluice.toml.5 has no entry for " << name;
  };
  for (const auto& key : config_keys()) expect_named(key.setting.name);
  for (const auto& key : vhost_user_keys()) expect_named(key.setting.name);
  for (const auto& key : virtio_user_keys()) expect_named(key.setting.name);
  for (const auto& key : generator_keys()) expect_named(key.setting.name);
  for (const auto& key : sink_keys()) expect_named(key.setting.name);
}

TEST(Documentation, TheManualOfRunNamesEachFlag) {
  const std::string manual = read_file("docs/man/sluice-run.1");
  for (const auto& key : config_keys()) {
    std::string flag;
    for (const char c : fmt::format("--{}", key.setting.flag)) {
      flag += c == '-' ? "\\-" : std::string(1, c);
    }
    EXPECT_TRUE(contains(manual, flag)) << "sluice-run.1 has no entry for " << flag;
  }
}

TEST(Documentation, ThePageOnTheControlSocketDescribesEachRequest) {
  const std::string page = read_file("docs/control.md");
  for (const std::string_view name : request_names()) {
    EXPECT_TRUE(contains(page, fmt::format("## `{}`", name))) << name;
  }
  for (std::size_t i = 0; i < net::kDropCauses; ++i) {
    const auto cause = static_cast<net::DropCause>(i);
    EXPECT_TRUE(
        contains(page, fmt::format("| `{}` | {} |", net::name_of(cause), meaning_of(cause))))
        << fmt::format("docs/control.md lacks the row\n| `{}` | {} |", net::name_of(cause),
                       meaning_of(cause));
  }
}

TEST(Documentation, TheExamplesAreRightConfigurations) {
  const auto root = std::filesystem::path(__FILE__).parent_path() / "../../../examples";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.path().extension() != ".toml") continue;
    ++count;
    const std::string name = entry.path().filename();
    const auto config = parse_config(read_file("examples/" + name), name);
    ASSERT_TRUE(config.has_value()) << config.error()[0].where << config.error()[0].cause;
    const Problems problems = check(*config);
    EXPECT_TRUE(problems.empty()) << name << ": " << problems.front().cause;
  }
  EXPECT_GE(count, 2);
}

TEST(Documentation, TheVersionIsThatOfTheBuild) {
  EXPECT_TRUE(
      contains(read_file("CMakeLists.txt"), fmt::format("project(sluice VERSION {} ", kVersion)));
}

}  // namespace
}  // namespace sluice::control
