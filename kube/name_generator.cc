#include "kube/name_generator.h"

#include "base/random.h"

namespace sublet::kube {

std::string GenerateName(std::string_view base) {
  // No vowels and no digits that look like them: no words by accident.
  static constexpr std::string_view kAlphabet = "bcdfghjklmnpqrstvwxz2456789";
  std::string name(base.substr(0, 58));
  std::uint64_t random = RandomUint64();
  for (int i = 0; i < 5; ++i) {
    name.push_back(kAlphabet[random % kAlphabet.size()]);
    random /= kAlphabet.size();
  }
  return name;
}

}  // namespace sublet::kube
