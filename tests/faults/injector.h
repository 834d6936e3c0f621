// The functions of the preloaded fault injector (injector.cc) that a program calls. Without it, both are null.
#pragma once

extern "C" {
// Starts or stops counting and failing calls, for the whole process.
[[gnu::weak]] void moecommFaultsArm(bool armed);
// Writes a line "calls: malloc 812 socket 5 ..." to standard output.
[[gnu::weak]] void moecommFaultsPrint();
}
