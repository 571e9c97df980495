// Random bytes from the kernel. Threads: any; never fails (getrandom without flags).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sublet {

void FillRandom(void* data, std::size_t bytes);
std::uint64_t RandomUint64();
// A version 4 UUID in its 36-character text form: what metadata.uid holds.
std::string RandomUuid();

}  // namespace sublet
