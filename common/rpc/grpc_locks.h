#pragma once

namespace tessera::rpc {

// Debian builds Abseil with its search for deadlocks: every lock inside gRPC then enters a graph
// that all threads share. Ours are not Abseil's, and gRPC's are not ours to search. Once a process;
// any thread.
void StopSearchForDeadlocks();

}  // namespace tessera::rpc
