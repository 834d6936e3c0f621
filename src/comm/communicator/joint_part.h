// Parts of collective calls that either leave the communicator as it was, on all ranks, or end it.
#pragma once

#include "comm/communicator/comm.h"
#include "comm/communicator/rounds.h"

namespace moe {

class JointPart {
 public:
  explicit JointPart(Comm& comm) : comm_(comm) {}

  // Runs a part that all ranks run. An outcome on which they agree leaves the communicator as it was. Any other failure
  // ends it, because the ranks are no longer in step.
  template <class Part>
  void run(Part part) {
    try {
      announcing(*comm_.bootstrap_, part);
    } catch (const AgreedError&) {
      throw;
    } catch (const Error& error) {
      comm_.fail(error.result(), error.what(), false);
      throw;
    }
  }
  // The same for a part from which there is no way back: every failure ends the communicator.
  template <class Part>
  void runFinal(Part part) {
    run([&] {
      try {
        part();
      } catch (const AgreedError& error) {
        comm_.fail(error.result(), error.what(), false);
        throw;
      }
    });
  }

 private:
  Comm& comm_;
};

}  // namespace moe
