// Any text as a quantity, a selector, a time, a duration: whatever parses must read back the same.
#include <cstdint>
#include <cstdlib>

#include "kube/field_selector.h"
#include "kube/label_selector.h"
#include "kube/quantity.h"
#include "kube/timestamp.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet::kube;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto quantity = Quantity::Parse(text); quantity.ok()) {
    const auto again = Quantity::Parse(quantity->Text());
    if (!again.ok() || again->Value() != quantity->Value()) {
      std::abort();
    }
  }
  if (const auto labels = LabelSelector::Parse(text); labels.ok()) {
    const auto again = LabelSelector::Parse(labels->Text());
    if (!again.ok() || again->Text() != labels->Text()) {
      std::abort();
    }
  }
  if (const auto fields = FieldSelector::Parse(text); fields.ok()) {
    (void)fields->Text();
  }
  if (const auto time = ParseTime(text); time.ok()) {
    (void)FormatMicroTime(*time);
  }
  if (const auto duration = ParseDuration(text); duration.ok()) {
    (void)FormatDuration(*duration);
    (void)HumanDuration(*duration);
  }
  return 0;
}
