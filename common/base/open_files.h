#pragma once

namespace tessera::base {

// What of this process's files connections of one kind may have: a descriptor of this number or a
// higher one is to be closed again, since it would be missing elsewhere. The system gives out the
// lowest number that is free, so a number tells how many files are open at least. `share` of the
// limit of open files (RLIMIT_NOFILE), at most 16384. REQUIRES: 0 < share <= 1. Any thread.
int FilesForConnections(double share);

// Of clients of gRPC, of clients of HTTP too, and so much is left to peers, stores, files and the
// operations port: the latter tells whether the process lives, and has to answer in a flood.
constexpr double kGrpcFiles = 0.75;
constexpr double kHttpFiles = 0.875;

}  // namespace tessera::base
