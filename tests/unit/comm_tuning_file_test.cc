#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "comm/config/tuning_file.h"
#include "device/view/views.h"
#include "support/base/temporary_folder.h"

namespace moe::test {
namespace {

constexpr Layout kFlat = Layout::flat, kRankMajor = Layout::rankMajor;

std::string refusalOf(const std::string& text) {
  try {
    parseTuning("f", text);
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeInvalidArgument);
    return error.what();
  }
  return "not refused";
}

TEST(TuningFile, ReplacesTheThresholdsThatItNames) {
  const ModeLimits tuned = parseTuning("f",
                                       "# measured on Sunday\n"
                                       "\n"
                                       "moecomm-tuning 1\n"
                                       "gpu flat 4096 # 8 tokens\n"
                                       "\thost-shared  rank-major\t0\r\n"
                                       "host-domains expert-major-padded 68719476736");
  EXPECT_EQ(modeLimit(tuned, ModeSetup::gpu, kFlat).bytes, 4096);
  EXPECT_TRUE(modeLimit(tuned, ModeSetup::gpu, kFlat).tuned);
  EXPECT_EQ(modeLimit(tuned, ModeSetup::hostShared, kRankMajor).bytes, 0);
  EXPECT_EQ(modeLimit(tuned, ModeSetup::hostDomains, Layout::expertMajorPadded).bytes, std::int64_t{1} << 36);
  EXPECT_EQ(modeLimit(tuned, ModeSetup::gpuDomains, kFlat).bytes, 16 << 20);
  EXPECT_FALSE(modeLimit(tuned, ModeSetup::gpuDomains, kFlat).tuned);
  EXPECT_EQ(parseTuning("f", "moecomm-tuning 1"), untuned());
}

TEST(TuningFile, MayBeSeveralFilesInARow) {
  const std::string first = "moecomm-tuning 1\ngpu flat 1\n", second = "moecomm-tuning 1\ngpu rank-major 2\n";
  const ModeLimits tuned = parseTuning("f", first + second);
  EXPECT_EQ(modeLimit(tuned, ModeSetup::gpu, kFlat).bytes, 1);
  EXPECT_EQ(modeLimit(tuned, ModeSetup::gpu, kRankMajor).bytes, 2);
}

TEST(TuningFile, HasALineForEachThreshold) {
  for (std::size_t setup = 0; setup < kSetupCount; ++setup) {
    for (std::size_t layout = 0; layout < kLayoutCount; ++layout) {
      const std::string line = tuningLine(static_cast<ModeSetup>(setup), static_cast<Layout>(layout), 77);
      EXPECT_EQ(parseTuning("f", "moecomm-tuning 1\n" + line)[setup][layout], 77) << line;
    }
  }
  EXPECT_EQ(tuningLine(ModeSetup::hostFull, Layout::expertMajor, 5), "host-full expert-major 5");
}

TEST(TuningFile, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(refusalOf(""), "f is empty; its first line must be moecomm-tuning 1");
  EXPECT_EQ(refusalOf("# nothing\n"), "f is empty; its first line must be moecomm-tuning 1");
  EXPECT_EQ(refusalOf("\ngpu flat 1\n"), "f line 2 is \"gpu flat 1\"; the first line must be moecomm-tuning 1");
  EXPECT_EQ(refusalOf("moecomm-tuning 2\n"),
            "f line 1 is \"moecomm-tuning 2\"; the first line must be moecomm-tuning 1");
  const std::string version = "moecomm-tuning 1\n";
  EXPECT_EQ(refusalOf(version + "gpu flat\n"), "f line 2 is \"gpu flat\"; it must have a setup, a layout and bytes");
  EXPECT_EQ(refusalOf(version + "gpu flat 1 2"),
            "f line 2 is \"gpu flat 1 2\"; it must have a setup, a layout and bytes");
  EXPECT_EQ(refusalOf(version + "gpus flat 1"),
            "f line 2: setup is \"gpus\"; it must be one of gpu, gpu-domains, host, host-full, host-shared, "
            "host-domains");
  EXPECT_EQ(refusalOf(version + "gpu FLAT 1"),
            "f line 2: layout is \"FLAT\"; it must be one of flat, expert-major, expert-major-padded, rank-major");
  for (const char* bytes : {"-1", "1k", "68719476737", "99999999999999999999", "0x10", "1.5"}) {
    EXPECT_EQ(refusalOf(version + "gpu flat " + bytes),
              std::string("f line 2: bytes is \"") + bytes + "\"; it must be a whole number from 0 to 68719476736");
  }
  EXPECT_EQ(refusalOf(version + "gpu flat 1\ngpu flat 2\n"),
            "f line 3 is \"gpu flat 2\"; an earlier line has this setup and layout");
  const std::string binary = refusalOf(std::string("\0\x7f\xff", 3) + std::string(100, 'x'));
  EXPECT_EQ(binary, "f line 1 is \"???" + std::string(57, 'x') + "...\"; the first line must be moecomm-tuning 1");
}

std::string refusalOfFile(const std::string& path) {
  try {
    readTuningFile(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeInvalidArgument);
    return error.what();
  }
  return "not refused";
}

TEST(TuningFile, NamesAFileThatCannotBeRead) {
  const TemporaryFolder folder;
  const std::string path = folder.at("tuning");
  EXPECT_EQ(refusalOfFile(path), "MOECOMM_TUNING is " + path + ", which cannot be read: No such file or directory");
  EXPECT_EQ(refusalOfFile(folder.path()), "MOECOMM_TUNING is " + folder.path() + ", which is not a regular file");
  std::ofstream(path) << "moecomm-tuning 1\ngpu flat 9\n";
  EXPECT_EQ(modeLimit(readTuningFile(path), ModeSetup::gpu, kFlat).bytes, 9);
  std::ofstream(path, std::ios::app) << "gpu\n";
  EXPECT_EQ(refusalOfFile(path), path + " line 3 is \"gpu\"; it must have a setup, a layout and bytes");
  std::ofstream(path, std::ios::app) << std::string(1 << 16, '#');
  EXPECT_EQ(refusalOfFile(path), "MOECOMM_TUNING is " + path + ", which has more than 65536 bytes");
}

}  // namespace
}  // namespace moe::test
