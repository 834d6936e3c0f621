// moecomm for C++17 and later: owners, exceptions and checked array sizes over moecomm.h. It is a set of headers alone,
// needs the standard library and moecomm.h, and defines no macro but its guards. All of it is in namespace moecomm.
//
// How a program uses it, on every rank:
//     moecomm::Communicator comm = moecomm::Communicator::fromEnv();
//     moecomm::Handle handle(comm, moecomm::HandleConfig(experts, topk));
//     handle.route({topkIdx, topkWeights});
//     handle.dispatch({rows, arrived, hidden});
//     runExperts(arrived, handle.counts());
//     handle.combine({arrived, sums, hidden});
// examples/moe_layer.cc is a whole program. docs/guide/cpp.md is an introduction.
//
// moecomm.h is the manual: what a call does, who makes it, shapes, memory spaces and lifetimes of arrays. Differences:
//  - Where a call there returns anything but moeSuccess, the call here throws Error, which has that result and the
//    sentence of moeGetLastError. Questions whose answer may be a failure throw nothing for it:
//    Communicator::asyncError, Handle::status.
//  - Config, HandleConfig, Placement, DispatchArgs and CombineArgs are the C structs with their defaults filled in.
//  - Arrays may come as Span, or as a container that converts to it. Their sizes are compared with the handle before
//    the library is called. A rank whose call was refused has not taken part in it.
//  - Owners are move-only. One that was destroyed or moved from is empty, and its calls throw moeInvalidUsage.
//
// How owners end:
//  - Communicator: by moeCommDestroy, which is not collective and frees handles and window memory too. Their owners may
//    live longer: they are then empty.
//  - Handle: by moeHandleDestroy. All work that uses it has run: synchronize the stream before the scope ends. Ranks
//    make and destroy the same handles in the same order, so a rank that leaves scopes alone, by an exception, does not
//    go on with that communicator.
//  - WindowMemory: by moeMemFree. No queued work still uses it.
//  - Destructors throw nothing and wait for no other rank, but for what moeCommDestroy says. destroy() does the same
//    and throws Error if it failed. Either way the owner is empty afterwards.
//
// One thread at a time uses an owner. asyncError, lastError, abort, setTimeout and limits of a Communicator are free of
// this rule while no other thread moves or destroys it.
#ifndef MOECOMM_HPP_
#define MOECOMM_HPP_

#include <moecomm.h>

#include <moecomm/arguments.hpp>
#include <moecomm/basics.hpp>
#include <moecomm/communicator.hpp>
#include <moecomm/handle.hpp>

#endif  // MOECOMM_HPP_
