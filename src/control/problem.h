// Problem: what is wrong with something a person wrote, and what would be right.
//
// Unlike Error it owns its text, because it quotes the person's words. It never travels on a
// packet path.
#pragma once

#include <string>
#include <vector>

namespace sluice::control {

struct Problem {
  std::string where;  // "sluice.toml:7:10", "--vhost-user", or empty.
  std::string cause;  // "'queues' cannot be 0".
  std::string cure;   // "a whole number from 1 to 127".
};

using Problems = std::vector<Problem>;

}  // namespace sluice::control
