// moecomm for C++17 and later: owners, exceptions and checked array sizes over moecomm.h. Headers only; needs nothing
// but moecomm.h and the standard library, and defines no macro but its include guards. Everything is in namespace
// moecomm.
//
// moecomm.h is the manual: what a call does, who makes it, shapes, memory spaces and lifetimes of arrays. What is
// different here:
//  - A call that returns anything but moeSuccess there throws Error here, with that result and moeGetLastError's
//  sentence.
//    Where asking is normal, there is a query that does not throw: Communicator::asyncError, Handle::status.
//  - Config, HandleConfig, DispatchArgs and CombineArgs are the C structs with their defaults filled in.
//  - Arrays may come as Span, or as a container that converts to it. Their sizes are then compared with the handle
//  before
//    the library is called. A rank whose call throws has not taken part in it.
//  - Owners are move-only. One that was destroyed or moved from is empty, and its calls throw moeInvalidUsage.
//
// How owners end:
//  - Communicator: moeCommDestroy, which is not collective. It frees handles and window memory too, so that their
//  owners
//    may come later: they are then empty. A rank that leaves while others wait for it ends their wait with
//    moeRemoteError, so a program that ends well lets all ranks finish their work first.
//  - Handle: moeHandleDestroy. Ranks destroy the same handles in the same order: declare them in the same order. All
//  work
//    that uses the handle must have run: synchronize the stream before the scope ends.
//  - WindowMemory: moeMemFree, under the same rule.
//  - Destructors never throw and do not wait for other ranks beyond what moeCommDestroy says. destroy() does the same
//    and reports what failed. The owner is empty in either case.
//  - A rank that leaves scopes by an exception destroys its handles alone. It must not go on with that communicator,
//  unless
//    all ranks unwind alike.
// One thread at a time calls an owner, but for asyncError, abort, setTimeout, lastError and limits of a Communicator.
//
//     moecomm::Communicator comm = moecomm::Communicator::fromEnv();
//     moecomm::Handle handle(comm, moecomm::HandleConfig(experts, topk));
//     handle.route({topkIdx, topkWeights});                                       // std::vector, or Span(pointer,
//     size) handle.dispatch(moecomm::DispatchArgs(rows, arrived, hidden)); runExperts(arrived, handle.counts());
//     handle.combine(moecomm::CombineArgs(arrived, sums, hidden));
//
// docs/guide/cpp.md says more. examples/moe_layer.cc is a whole program.
#ifndef MOECOMM_HPP_
#define MOECOMM_HPP_

#include <moecomm.h>

#include <moecomm/arguments.hpp>
#include <moecomm/basics.hpp>
#include <moecomm/communicator.hpp>
#include <moecomm/handle.hpp>

#endif  // MOECOMM_HPP_
