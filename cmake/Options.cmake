# Compiler and linker options which hold for every target of every preset.
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Debug CACHE STRING "Debug or Release" FORCE)
endif()
# -O1 keeps the tests quick and the back traces true. Sanitizers print lines only, so line tables
# are enough for them.
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -D_GLIBCXX_ASSERTIONS")
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
if(SLUICE_SANITIZE)
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -D_GLIBCXX_ASSERTIONS")
endif()

find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SLUICE_CCACHE})
endif()

find_package(Threads REQUIRED)
link_libraries(Threads::Threads)

# Members that a designated initializer leaves out are zero or their default: that is the idiom, not
# a mistake, and GCC 12 does not know it.
add_compile_options(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror
                    -Wno-missing-field-initializers -fno-plt -fdiagnostics-color=auto)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wthread-safety)
  # The linker of the same LLVM release: several times quicker than ld, which matters most with
  # sanitizers.
  find_program(SLUICE_LLD ld.lld HINTS /usr/lib/llvm-19/bin NO_DEFAULT_PATH)
  if(SLUICE_LLD)
    add_link_options(--ld-path=${SLUICE_LLD})
  endif()
else()
  # GCC 12 sees overflows and overlaps in libstdc++ itself (vector::insert, string +) at -O3 where
  # there are none.
  add_compile_options(-Wno-stringop-overflow -Wno-restrict)
endif()

if(SLUICE_NATIVE)
  add_compile_options(-march=native)
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  # Every x86-64 server since 2009. Wider vectors are chosen at run time where they pay.
  add_compile_options(-march=x86-64-v2)
endif()

if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_link_options(-Wl,-z,relro,-z,now)
endif()
if(SLUICE_LTO)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
endif()

# Under sanitizers some sources are compiled as one, which halves the time: nobody edits and
# rebuilds there as in daily work. Names of the neighbours are then in sight, and shadowing them is
# no mistake.
if(SLUICE_SANITIZE)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
  add_compile_options(-Wno-shadow)
  # These two hold every path by every ring: as one source they would keep one core waiting.
  set_source_files_properties(src/net/path.cc src/net/driver_queue.cc
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endif()

set(SLUICE_FUZZING OFF)
if(SLUICE_SANITIZE)
  # libFuzzer brings its own main(): only fuzz targets link it, everything else is instrumented
  # alone.
  if(SLUICE_SANITIZE MATCHES "fuzzer")
    set(SLUICE_FUZZING ON)
  endif()
  string(REPLACE "fuzzer" "fuzzer-no-link" sluice_instrument "${SLUICE_SANITIZE}")
  # vptr checks need run-time type information, which the hot folders do without.
  add_compile_options(-fsanitize=${sluice_instrument} -fno-sanitize-recover=all -fno-sanitize=vptr
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sluice_instrument} -fno-sanitize=vptr)
  if(SLUICE_SANITIZE MATCHES "thread")
    add_compile_definitions(SLUICE_TSAN)
  endif()
endif()
