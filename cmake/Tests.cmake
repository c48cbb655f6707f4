# The tests: one program per folder of tests/unit/, one per suite, one per fuzz target. Each is one
# ctest entry whose label says its kind.
find_package(GTest REQUIRED)

if(SLUICE_SANITIZE)
  set(sluice_test_timeout 300)
else()
  set(sluice_test_timeout 120)
endif()

# Where sanitizers find the program that turns addresses into lines, and how strict they are.
function(sluice_test_properties name label)
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${sluice_test_timeout})
  if(SLUICE_SANITIZE)
    set_tests_properties(${name} PROPERTIES
      ENVIRONMENT "UBSAN_OPTIONS=print_stacktrace=1;ASAN_OPTIONS=detect_stack_use_after_return=1"
      ENVIRONMENT_MODIFICATION "PATH=path_list_append:/usr/lib/llvm-19/bin")
  endif()
endfunction()

# Support code shared by all tests. A test program links the layers it is about; what the support
# code needs comes behind them, as sanitizers make the linker take more members than a program uses.
file(GLOB support_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.cc)
if(support_sources)
  add_library(sluice_test_support STATIC ${support_sources})
  set(support_scope PUBLIC)
else()
  add_library(sluice_test_support INTERFACE)
  set(support_scope INTERFACE)
endif()
target_include_directories(sluice_test_support ${support_scope} ${PROJECT_SOURCE_DIR}/src
                                                                ${PROJECT_SOURCE_DIR}
                                                                ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(sluice_test_support ${support_scope} GTest::gmock GTest::gtest)
if(TARGET sluice_switch)
  target_link_libraries(sluice_test_support ${support_scope} sluice_switch)
endif()

# Links `target` to those of the layers that exist.
function(sluice_link_layers target)
  foreach(layer IN LISTS ARGN)
    if(TARGET sluice_${layer})
      target_link_libraries(${target} PRIVATE sluice_${layer})
    endif()
  endforeach()
endfunction()

# Test sources are compiled without optimisation, which takes half the time; what they test is not.
# Not so what libFuzzer runs, where every call counts.
set(sluice_test_flags $<$<CONFIG:Debug>:-O0> $<$<CONFIG:Debug>:-g1>)

# Four test sources are compiled as one in every preset (sanitizers: see Options.cmake): what they
# include takes longer than they do.
if(NOT CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 4)
  add_compile_options(-Wno-shadow)
endif()

# sluice_test(name label SOURCES... LAYERS...): one gtest program, one ctest entry.
function(sluice_test name label)
  cmake_parse_arguments(arg "" "" "SOURCES;LAYERS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_compile_options(${name} PRIVATE ${sluice_test_flags})
  target_link_libraries(${name} PRIVATE sluice_test_support)
  sluice_link_layers(${name} ${arg_LAYERS})
  target_link_libraries(${name} PRIVATE GTest::gmock_main)
  add_test(NAME ${name} COMMAND ${name})
  sluice_test_properties(${name} ${label})
endfunction()

# The layers up to and with `top`, highest first.
function(sluice_layers_upto top out)
  set(order app control switch vhost net virtio packet memory base)
  list(FIND order ${top} at)
  list(SUBLIST order ${at} -1 layers)
  set(${out} ${layers} PARENT_SCOPE)
endfunction()

# sluice_suite(name top): tests/<name>/*.cc as one program which sees the layers up to `top`.
function(sluice_suite name top)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/*.cc)
  if(sources)
    sluice_layers_upto(${top} layers)
    sluice_test(${name} ${name} SOURCES ${sources} LAYERS ${layers})
  endif()
endfunction()

# The style of the tree, once: it does not depend on the compiler.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT SLUICE_SANITIZE)
  foreach(name tidy tidy_test)
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/tidy/${name}.py)
    sluice_test_properties(${name} tidy)
  endforeach()
endif()

foreach(folder base memory packet virtio net vhost switch control app)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/unit/${folder}/*_test.cc)
  if(sources)
    sluice_test(unit_${folder} unit SOURCES ${sources} LAYERS ${folder})
  endif()
endforeach()
sluice_suite(contract switch)
sluice_suite(model switch)
if(NOT SLUICE_SANITIZE MATCHES "thread")
  sluice_suite(conformance vhost)
endif()
sluice_suite(regression control)

# Fuzz targets: with libFuzzer in the preset `asan`; elsewhere a replay of the corpus and of random
# inputs, so that a target cannot rot and an input once found stays tested under every compiler.
# Not under ThreadSanitizer: they have one thread, as conformance tests have.
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
if(SLUICE_SANITIZE MATCHES "thread")
  set(fuzz_sources)
endif()
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name ${source} NAME_WE)
  list(APPEND fuzz_targets ${name})
  string(REGEX REPLACE "_fuzz$" "" subject ${name})
  sluice_layers_upto(control layers)
  set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${subject})
  if(SLUICE_FUZZING)
    add_executable(${name} ${source})
    target_link_options(${name} PRIVATE -fsanitize=${SLUICE_SANITIZE})
  else()
    add_executable(${name} ${source} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc)
    target_compile_options(${name} PRIVATE ${sluice_test_flags})
    add_test(NAME ${name} COMMAND ${name} ${corpus})
    sluice_test_properties(${name} fuzz)
  endif()
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${name} PRIVATE sluice_test_support)
  sluice_link_layers(${name} ${layers})
endforeach()

# The canary must be found by libFuzzer, or the silence of the others means nothing.
if(SLUICE_FUZZING)
  add_executable(canary ${PROJECT_SOURCE_DIR}/tests/fuzz/canary.cc)
  target_link_options(canary PRIVATE -fsanitize=${SLUICE_SANITIZE})
  add_custom_target(fuzz_targets DEPENDS canary ${fuzz_targets})
endif()
