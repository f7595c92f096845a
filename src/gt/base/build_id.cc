#include "gt/base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

namespace gt {

std::string BuildId() {
  std::string id = "unknown";
  auto look = [](dl_phdr_info* object, size_t, void* result) {
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = object->dlpi_phdr[i];
      if (part.p_type != PT_NOTE) continue;
      const auto* at = reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr);
      const char* end = at + part.p_memsz;
      while (at + sizeof(ElfW(Nhdr)) <= end) {
        const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
        const char* name = at + sizeof *note;
        const char* bytes = name + (note->n_namesz + 3) / 4 * 4;
        if (note->n_type == NT_GNU_BUILD_ID) {
          auto* text = static_cast<std::string*>(result);
          text->clear();
          for (ElfW(Word) j = 0; j < note->n_descsz; ++j) {
            *text += fmt::format("{:02x}", static_cast<unsigned char>(bytes[j]));
          }
          return 1;
        }
        at = bytes + (note->n_descsz + 3) / 4 * 4;
      }
    }
    return 1;  // the program is the first object
  };
  dl_iterate_phdr(look, &id);
  return id;
}

}  // namespace gt
