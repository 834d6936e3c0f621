// Options of the thread sanitizer for tests with the adapter in software in their process.
extern "C" {

const char* __tsan_default_options();       // NOLINT(bugprone-reserved-identifier): the sanitizer's name
const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier): the sanitizer's name

// The adapter reads and writes as hardware does. The option about sends is explained in
// tests/support/base/tsan_options.cc.
[[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "intercept_send=0:ignore_noninstrumented_modules=1";
}

// A step writes a WQE, and the owner of its completion reads it. The adapter orders the two, and the sanitizer does not
// see the adapter.
[[gnu::visibility("default")]] const char* __tsan_default_suppressions() {
  return "race:moe::mlx5::endOfWqe\n";
}

}  // extern "C"
