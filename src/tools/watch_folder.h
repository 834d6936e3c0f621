// The folder in which moerun lets its ranks offer their records, and in which moe_top looks, unless
// MOECOMM_WATCH_FOLDER names another one.
#pragma once

#include <string>

namespace moe::tools {

// "/tmp/moecomm-UID". It is the same for all shells of a user, unlike TMPDIR and XDG_RUNTIME_DIR.
std::string defaultWatchFolder();

// Makes the folder, for this user alone, unless it exists. Removes sockets that killed jobs have left there. Returns
// false if ranks could not offer sockets in it: it is another user's, others may write it, or it cannot be written.
bool prepareWatchFolder(const std::string& folder);

}  // namespace moe::tools
