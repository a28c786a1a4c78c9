// Status codes, flavours and versions in words.
#include "exattn/exattn.h"

namespace {

struct StatusText {
  const char *name;
  const char *sentence;
};

// In the order of the numbers.
constexpr StatusText kStatuses[] = {
    {"EXATTN_OK", "success"},
    {"EXATTN_ERROR_NULL", "a required pointer is null"},
    {"EXATTN_ERROR_STRUCT_SIZE", "struct_size is not one that this library knows: start from the _INIT macro"},
    {"EXATTN_ERROR_SIZE", "a size is negative, or zero where it may not be"},
    {"EXATTN_ERROR_OVERFLOW", "a product of sizes and strides does not fit in 64 bits or in the address space"},
    {"EXATTN_ERROR_STRIDES",
     "strides are missing: rank must say how many are set; or they are not those of packed keys"},
    {"EXATTN_ERROR_OVERLAP", "an output overlaps itself or something else that the call uses"},
    {"EXATTN_ERROR_ENUM", "an enumeration field holds a value that is not allowed"},
    {"EXATTN_ERROR_HEADS", "heads is not a multiple of kv_heads"},
    {"EXATTN_ERROR_OFFSET", "a position, or a start or length of a sequence, is out of range"},
    {"EXATTN_ERROR_ALIGNMENT", "a pointer is not aligned as its element type must be"},
    {"EXATTN_ERROR_SCRATCH", "the scratch given is smaller than exattn_attention_scratch_size says"},
    {"EXATTN_ERROR_LANES_UNKNOWN", "no lane kind has that name or number (EXATTN_LANES of the environment counts too)"},
    {"EXATTN_ERROR_LANES_UNSUPPORTED", "the lane kind is not in this build, or not on this CPU or operating system"},
    {"EXATTN_ERROR_FLAVOUR_UNSUPPORTED",
     "the lane kind has no fast flavour here; the lane kind scalar emulates it slowly"},
    {"EXATTN_ERROR_MEMORY", "memory could not be allocated"},
    {"EXATTN_ERROR_THREADS", "threads could not be made, their number is out of range, or a pool and an executor were "
                             "given together"},
    {"EXATTN_ERROR_EXECUTOR", "the caller's parallel_for did not run the tasks that it was given"},
    {"EXATTN_ERROR_OPTION", "an option's value is out of range, or it excludes another that is set"},
    {"EXATTN_ERROR_PAGE", "the page table names a page that there is not"},
    {"EXATTN_ERROR_STATE", "a state is damaged, too small, or of another call than this one"},
};

constexpr exattn_status kStatusCount = sizeof(kStatuses) / sizeof(kStatuses[0]);
static_assert(kStatusCount == EXATTN_ERROR_STATE + 1);

} // namespace

const char *exattn_status_name(exattn_status status) {
  return status >= 0 && status < kStatusCount ? kStatuses[status].name : "EXATTN_STATUS_UNKNOWN";
}

const char *exattn_status_string(exattn_status status) {
  return status >= 0 && status < kStatusCount ? kStatuses[status].sentence : "not a status of this library";
}

const char *exattn_version() {
  return EXATTN_VERSION;
}

const char *exattn_definition() {
  return EXATTN_DEFINITION;
}

const char *exattn_flavour_name(int32_t flavour) {
  switch (flavour) {
  case EXATTN_EXACT:
    return "exact";
  case EXATTN_FAST:
    return "fast";
  default:
    return nullptr;
  }
}
