# Run at build time (cmake -P). Writes OUTPUT, the source of buildCommit(), with the commit that is checked out in
# SOURCE. Leaves an unchanged file alone. The commit is empty without git, outside a checkout, and inside a foreign one.
set(commit "")
find_program(git git)
if(git)
  # In a container the files often belong to another user.
  set(in_source ${git} -c safe.directory=* --no-optional-locks -C ${SOURCE})
  execute_process(COMMAND ${in_source} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  file(REAL_PATH "${SOURCE}" source)
  if(NOT failed AND top STREQUAL source)
    execute_process(COMMAND ${in_source} describe --always --exclude=* --abbrev=12 --dirty
      OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "tools/program_text.h"

std::string moe::tools::buildCommit() {
  return "@commit@";
}
]])
