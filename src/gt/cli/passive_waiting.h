// How OpenMP's threads wait for each other: asleep, unless the user wants them to spin.
#pragma once

namespace gt::cli {

// Starts this program again with OMP_WAIT_POLICY=passive, because OpenMP reads the variable before
// main() runs. A thread that spins keeps a core busy, so on a machine with other work it delays the
// very thread that it waits for. Returns at once if the environment says how threads wait
// (OMP_WAIT_POLICY, GOMP_SPINCOUNT), binds them to cores of their own (OMP_PROC_BIND,
// GOMP_CPU_AFFINITY), or allows only one.
void WaitPassively(char** arguments);

}  // namespace gt::cli
