// What must not stay behind when a signal ends the program: files that are not finished, processes that it started.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace exattn::program {

// The path has to stay where it is until it is kept.
void remove_on_signal(const char *path);
void keep_on_signal(const char *path);
std::vector<std::string> files_to_remove();

// A process group, by its leader.
void kill_on_signal(pid_t group);
void spare_on_signal(pid_t group);

} // namespace exattn::program
