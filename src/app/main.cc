// The program `sluice`.
#include "app/cli.h"

int main(int argc, char** argv) {
  return sluice::app::run_cli(argc, argv);
}
