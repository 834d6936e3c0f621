// Preloaded into a rank, this library makes chosen calls of libc fail as they do when a resource has run out, or it
// ends or stops the process there. It counts calls while the program has armed it (injector.h).
//   FAULT_CALL   which call: malloc, socket, ...; any: all of them together. Unset: nothing fails, calls are counted
//   FAULT_AT     the number of the first call that fails, from 1 on
//   FAULT_FOR    how many calls fail (1)
//   FAULT_ERRNO  the errno of the failure, as a number; unset: one that fits the call
//   FAULT_MODE   fail; kill: the process ends there; stop: it stops there
#include "faults/injector.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT: glibc's own
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT
void* __libc_realloc(void* memory, std::size_t bytes);            // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT
}

namespace {

struct Call {
  const char* name;
  int error;
  std::atomic<long> count = 0;
};

constinit Call ofMalloc{"malloc", ENOMEM}, ofMmap{"mmap", ENOMEM}, ofSocket{"socket", EMFILE},
    ofConnect{"connect", ENETUNREACH}, ofBind{"bind", EADDRINUSE}, ofListen{"listen", EADDRINUSE},
    ofAccept{"accept4", EMFILE}, ofName{"getsockname", ENOBUFS}, ofPoll{"poll", ENOMEM}, ofSend{"sendmsg", ENOBUFS},
    ofReceive{"recvmsg", ENOMEM}, ofEpollCreate{"epoll_create1", EMFILE}, ofEpollControl{"epoll_ctl", ENOSPC},
    ofEpollWait{"epoll_wait", EBADF}, ofEvent{"eventfd", EMFILE}, ofThread{"pthread_create", EAGAIN},
    ofRandom{"getrandom", ENOSYS}, ofMemory{"memfd_create", EMFILE}, ofCut{"ftruncate", ENOMEM},
    ofControl{"fcntl", EMFILE}, ofOpen{"open", EMFILE}, ofState{"fstat", ENOMEM}, ofInterfaces{"getifaddrs", ENOMEM},
    ofWrite{"write", ENOSPC};
constinit Call* const kCalls[] = {&ofMalloc,       &ofMmap,      &ofSocket, &ofConnect, &ofBind,       &ofListen,
                                  &ofAccept,       &ofName,      &ofPoll,   &ofSend,    &ofReceive,    &ofEpollCreate,
                                  &ofEpollControl, &ofEpollWait, &ofEvent,  &ofThread,  &ofRandom,     &ofMemory,
                                  &ofCut,          &ofControl,   &ofOpen,   &ofState,   &ofInterfaces, &ofWrite};

constinit std::atomic<bool> armed = false;
constinit std::atomic<long> allCalls = 0;
thread_local bool inside = false;  // true during the injector's own calls

struct Plan {
  bool fails = false, any = false;
  const Call* target = nullptr;
  long at = 1, count = 1;
  int error = 0, signal = 0;
};
constinit Plan plan;

long numberIn(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atol(text) : otherwise;
}

__attribute__((constructor)) void readPlan() {
  const char* target = std::getenv("FAULT_CALL");
  if (target == nullptr) return;
  plan.any = std::strcmp(target, "any") == 0;
  for (const Call* call : kCalls) {
    if (std::strcmp(call->name, target) == 0) plan.target = call;
  }
  plan.at = numberIn("FAULT_AT", 1);
  plan.count = numberIn("FAULT_FOR", 1);
  plan.error = static_cast<int>(numberIn("FAULT_ERRNO", 0));
  const char* mode = std::getenv("FAULT_MODE");
  if (mode != nullptr && std::strcmp(mode, "kill") == 0) plan.signal = SIGKILL;
  if (mode != nullptr && std::strcmp(mode, "stop") == 0) plan.signal = SIGSTOP;
  plan.fails = plan.any || plan.target != nullptr;
  if (!plan.fails) std::fprintf(stderr, "FAULT_CALL is %s, which is none\n", target), std::_Exit(9);
}

// Counts the call. Returns true, with errno set, if it must fail.
bool fails(Call& call) {
  if (inside || !armed.load(std::memory_order_relaxed)) return false;
  const long ofAll = ++allCalls, ofThis = ++call.count;
  if (!plan.fails || (!plan.any && plan.target != &call)) return false;
  const long number = plan.any ? ofAll : ofThis;
  if (number < plan.at || number >= plan.at + plan.count) return false;
  if (plan.signal != 0) {
    ::kill(::getpid(), plan.signal);
    return false;
  }
  errno = plan.error != 0 ? plan.error : call.error;
  return true;
}

void* next(const char* name) {
  inside = true;
  void* found = ::dlsym(RTLD_NEXT, name);
  inside = false;
  return found;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void moecommFaultsArm(bool on) {
  armed = on;
}

void moecommFaultsPrint() {
  std::printf("calls:");
  for (const Call* call : kCalls) std::printf(" %s %ld", call->name, call->count.load());
  std::printf(" any %ld\n", allCalls.load());
}

void* malloc(std::size_t bytes) {
  return fails(ofMalloc) ? nullptr : __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  return fails(ofMalloc) ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  return bytes != 0 && fails(ofMalloc) ? nullptr : __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return fails(ofMalloc) ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  void* found = fails(ofMalloc) ? nullptr : __libc_memalign(alignment, bytes);
  if (found != nullptr) *memory = found;
  return found != nullptr ? 0 : ENOMEM;
}

// Looks the function up at the first call, because libc's constructors call some of these functions before this
// library's own constructor runs.
#define PASS_ON(name, ...)                        \
  static std::atomic<void*> real = nullptr;       \
  if (real.load() == nullptr) real = next(#name); \
  return reinterpret_cast<decltype(&::name)>(real.load())(__VA_ARGS__)

void* mmap(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if (fails(ofMmap)) return MAP_FAILED;
  PASS_ON(mmap, address, bytes, protection, flags, fd, offset);
}
int socket(int domain, int type, int protocol) noexcept {
  if (fails(ofSocket)) return -1;
  PASS_ON(socket, domain, type, protocol);
}
int connect(int fd, const sockaddr* name, socklen_t length) {
  if (fails(ofConnect)) return -1;
  PASS_ON(connect, fd, name, length);
}
int bind(int fd, const sockaddr* name, socklen_t length) noexcept {
  if (fails(ofBind)) return -1;
  PASS_ON(bind, fd, name, length);
}
int listen(int fd, int backlog) noexcept {
  if (fails(ofListen)) return -1;
  PASS_ON(listen, fd, backlog);
}
int accept4(int fd, sockaddr* name, socklen_t* length, int flags) {
  if (fails(ofAccept)) return -1;
  PASS_ON(accept4, fd, name, length, flags);
}
int getsockname(int fd, sockaddr* name, socklen_t* length) noexcept {
  if (fails(ofName)) return -1;
  PASS_ON(getsockname, fd, name, length);
}
int poll(pollfd* entries, nfds_t count, int waitMs) {
  if (fails(ofPoll)) return -1;
  PASS_ON(poll, entries, count, waitMs);
}
int ppoll(pollfd* entries, nfds_t count, const timespec* wait, const sigset_t* signals) {
  if (fails(ofPoll)) return -1;
  PASS_ON(ppoll, entries, count, wait, signals);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (fails(ofSend)) return -1;
  PASS_ON(sendmsg, fd, message, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  if (fails(ofReceive)) return -1;
  PASS_ON(recvmsg, fd, message, flags);
}
int epoll_create1(int flags) noexcept {
  if (fails(ofEpollCreate)) return -1;
  PASS_ON(epoll_create1, flags);
}
int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  if (fails(ofEpollControl)) return -1;
  PASS_ON(epoll_ctl, epoll, operation, fd, event);
}
int epoll_wait(int epoll, epoll_event* events, int count, int waitMs) {
  if (fails(ofEpollWait)) return -1;
  PASS_ON(epoll_wait, epoll, events, count, waitMs);
}
int eventfd(unsigned count, int flags) noexcept {
  if (fails(ofEvent)) return -1;
  PASS_ON(eventfd, count, flags);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept {
  if (fails(ofThread)) return errno;
  PASS_ON(pthread_create, thread, attributes, body, argument);
}
ssize_t getrandom(void* to, std::size_t bytes, unsigned flags) {
  if (fails(ofRandom)) return -1;
  PASS_ON(getrandom, to, bytes, flags);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  if (fails(ofMemory)) return -1;
  PASS_ON(memfd_create, name, flags);
}
int ftruncate(int fd, off_t bytes) noexcept {
  if (fails(ofCut)) return -1;
  PASS_ON(ftruncate, fd, bytes);
}
int fcntl(int fd, int command, ...) {
  std::va_list list;
  va_start(list, command);
  void* argument = va_arg(list, void*);
  va_end(list);
  if (fails(ofControl)) return -1;
  PASS_ON(fcntl, fd, command, argument);
}
int fcntl64(int fd, int command, ...) {
  std::va_list list;
  va_start(list, command);
  void* argument = va_arg(list, void*);
  va_end(list);
  if (fails(ofControl)) return -1;
  PASS_ON(fcntl64, fd, command, argument);
}
int open(const char* name, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, unsigned);
  va_end(list);
  if (fails(ofOpen)) return -1;
  PASS_ON(open, name, flags, mode);
}
FILE* fopen(const char* name, const char* mode) {
  if (fails(ofOpen)) return nullptr;
  PASS_ON(fopen, name, mode);
}
FILE* fopen64(const char* name, const char* mode) {
  if (fails(ofOpen)) return nullptr;
  PASS_ON(fopen64, name, mode);
}
int fstat(int fd, struct stat* info) noexcept {
  if (fails(ofState)) return -1;
  PASS_ON(fstat, fd, info);
}
int getifaddrs(ifaddrs** list) noexcept {
  if (fails(ofInterfaces)) return -1;
  PASS_ON(getifaddrs, list);
}
ssize_t write(int fd, const void* from, std::size_t bytes) {
  if (fails(ofWrite)) return -1;
  PASS_ON(write, fd, from, bytes);
}

}  // extern "C"
#pragma GCC visibility pop
