// Reads replies and lays out tables.
#include "app/stats_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "app/json.h"
#include "app/table.h"

namespace sluice::app {
namespace {

using control::Json;

constexpr std::array<std::pair<const char*, const char*>, 2> kDirections = {
    {{"from_driver", "from driver"}, {"to_driver", "to driver"}}};

// The meaning of a cause by its name, for replies that may come from another version.
std::string meaning(const std::string& cause) {
  for (std::size_t i = 0; i < net::kDropCauses; ++i) {
    const auto known = static_cast<net::DropCause>(i);
    if (net::name_of(known) == cause) return std::string(control::meaning_of(known));
  }
  return "";
}

std::string drops_text(const Json& stats) {
  Table table({{"PORT"}, {"DIRECTION"}, {"DROPPED", Align::kRight}, {"CAUSE"}, {"MEANING"}});
  for (const Json& port : stats) {
    for (const auto& [key, words] : kDirections) {
      const Json& drops = member(member(port, key), "drops");
      if (!drops.is_object()) continue;
      for (const auto& [cause, count] : drops.items()) {
        const std::uint64_t number = as_number(count);
        if (number == 0) continue;
        table.add({text(port, "name"), words, fmt::format("{}", number), cause, meaning(cause)});
      }
    }
  }
  return table.empty() ? "" : "\n" + table.text();
}

const Json* find_port(const Json& stats, const std::string& name) {
  const auto found =
      std::ranges::find_if(stats, [&](const Json& port) { return text(port, "name") == name; });
  return found == stats.end() ? nullptr : &*found;
}

struct Sums {
  std::uint64_t packets = 0;
  std::uint64_t dropped = 0;
  void add(const Json& totals) {
    packets += number(totals, "packets");
    dropped += number(totals, "dropped");
  }
};

std::string missing(std::uint64_t whole, std::uint64_t parts) {
  return parts < whole ? fmt::format(" + {} not accounted for", whole - parts) : "";
}

// Growth per second of one counter.
double rate(const Json& before, const Json& now, const char* name, double seconds) {
  const std::uint64_t old_value = number(before, name);
  const std::uint64_t new_value = number(now, name);
  return new_value > old_value ? static_cast<double>(new_value - old_value) / seconds : 0.0;
}

}  // namespace

std::string totals_text(const Json& reply) {
  const Json& stats = member(reply, "stats");
  Table table({{"PORT"},
               {"DIRECTION"},
               {"PACKETS", Align::kRight},
               {"BYTES", Align::kRight},
               {"BURSTS", Align::kRight},
               {"NOTIFICATIONS", Align::kRight},
               {"DROPPED", Align::kRight}});
  for (const Json& port : stats) {
    for (const auto& [key, words] : kDirections) {
      const Json& totals = member(port, key);
      table.add({text(port, "name"), words, text(totals, "packets"), text(totals, "bytes"),
                 text(totals, "bursts"), text(totals, "notifications"), text(totals, "dropped")});
    }
  }
  return table.text() + drops_text(stats);
}

std::string balance_text(const Json& reply) {
  Sums in;
  Sums out;
  for (const Json& port : member(reply, "stats")) {
    in.add(member(port, "from_driver"));
    out.add(member(port, "to_driver"));
  }
  const std::uint64_t forwarded = number(member(reply, "forwarding"), "forwarded");
  const std::uint64_t offers = number(member(reply, "forwarding"), "offers");
  std::string text =
      fmt::format("{} taken = {} forwarded + {} dropped", in.packets, forwarded, in.dropped);
  // What we send for a guest that moved (an announcement) is forwarded but was never taken.
  const std::uint64_t seen = forwarded + in.dropped;
  if (seen > in.packets) text += fmt::format(" - {} made here", seen - in.packets);
  text += missing(in.packets, seen);
  text += fmt::format("\n{} offered = {} delivered + {} dropped", offers, out.packets, out.dropped);
  if (out.packets + out.dropped > offers) {
    text += fmt::format(" - {} too many", out.packets + out.dropped - offers);
  }
  return text + missing(offers, out.packets + out.dropped) + '\n';
}

std::string rates_text(const Json& before, const Json& now) {
  constexpr double kNanoseconds = 1e9;
  constexpr double kBitsPerByte = 8.0;
  const std::uint64_t from = number(before, "time_ns");
  const std::uint64_t to = number(now, "time_ns");
  const double seconds = to > from ? static_cast<double>(to - from) / kNanoseconds : 1.0;
  Table table({{"PORT"},
               {"FROM DRIVER pps", Align::kRight},
               {"FROM bit/s", Align::kRight},
               {"FROM drops/s", Align::kRight},
               {"TO DRIVER pps", Align::kRight},
               {"TO bit/s", Align::kRight},
               {"TO drops/s", Align::kRight}});
  for (const Json& port : member(now, "stats")) {
    const Json* old_port = find_port(member(before, "stats"), text(port, "name"));
    std::vector<std::string> cells = {text(port, "name")};
    for (const auto& [key, words] : kDirections) {
      const Json& totals = member(port, key);
      const Json& old_totals = old_port == nullptr ? totals : member(*old_port, key);
      cells.push_back(with_prefix(rate(old_totals, totals, "packets", seconds)));
      cells.push_back(with_prefix(rate(old_totals, totals, "bytes", seconds) * kBitsPerByte));
      cells.push_back(with_prefix(rate(old_totals, totals, "dropped", seconds)));
    }
    table.add(std::move(cells));
  }
  return table.text();
}

}  // namespace sluice::app
