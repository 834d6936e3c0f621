// Which sanitizer a test is compiled with. GCC and clang tell it in different ways.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define MOE_TEST_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define MOE_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MOE_TEST_ASAN 1
#elif __has_feature(thread_sanitizer)
#define MOE_TEST_TSAN 1
#endif
#endif

#ifndef MOE_TEST_ASAN
#define MOE_TEST_ASAN 0
#endif
#ifndef MOE_TEST_TSAN
#define MOE_TEST_TSAN 0
#endif
