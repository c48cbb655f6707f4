# sluice_library() and sluice_program(): how the folders of src/ become targets.

# Code on the packet path neither throws nor asks for types at run time. An interface declared in
# one of these folders and implemented above it must have only pure or inline virtual functions: its
# type information is then emitted where it is used.
set(SLUICE_HOT_FOLDERS memory packet virtio net)

# sluice_library(folder LAYERS...): library sluice_<folder> from src/<folder>/*.cc, linked to the
# layers named and to nothing else. A folder with headers alone becomes an INTERFACE library, a
# folder without content is skipped.
function(sluice_library folder)
  set(dir ${PROJECT_SOURCE_DIR}/src/${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${dir}/*.cc)
  file(GLOB headers CONFIGURE_DEPENDS ${dir}/*.h)
  list(REMOVE_ITEM sources ${dir}/main.cc)
  set(target sluice_${folder})

  if(sources)
    add_library(${target} STATIC ${sources} ${headers})
    set(scope PUBLIC)
    if(folder IN_LIST SLUICE_HOT_FOLDERS)
      target_compile_options(${target} PRIVATE -fno-exceptions -fno-rtti)
    endif()
  elseif(headers)
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  else()
    return()
  endif()

  target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR}/src)
  foreach(layer IN LISTS ARGN)
    if(TARGET sluice_${layer})
      target_link_libraries(${target} ${scope} sluice_${layer})
    endif()
  endforeach()
  # Text and formats belong to the two top layers. nlohmann-json and CLI11 are headers
  # without a target.
  if(folder STREQUAL "control" OR folder STREQUAL "app")
    find_package(fmt REQUIRED)
    target_link_libraries(${target} ${scope} fmt::fmt)
  endif()
endfunction()

# sluice_program(): the program `sluice` from src/app/main.cc, in the top folder of the build.
function(sluice_program)
  set(main ${PROJECT_SOURCE_DIR}/src/app/main.cc)
  file(GLOB present CONFIGURE_DEPENDS ${main})
  if(NOT present)
    return()
  endif()
  add_executable(sluice ${main})
  if(TARGET sluice_app)
    target_link_libraries(sluice PRIVATE sluice_app)
  else()
    target_include_directories(sluice PRIVATE ${PROJECT_SOURCE_DIR}/src)
  endif()
  set_target_properties(sluice PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endfunction()
