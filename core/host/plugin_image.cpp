// SPDX-License-Identifier: Apache-2.0
// Loads a checked file through its descriptor.
#include "host/plugin_image.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "host/active_call.hpp"
#include "host/plugin.hpp"

namespace tenon::core {
namespace {

// Never destroyed, like the loader's image.
struct Image {
  boost::dll::shared_library library;
  FileId id;
  std::string path;
  Descriptor directory;             // kept open: the loader's $ORIGIN is a path through it
  const char* loaded_as = nullptr;  // the loader's name of the image
};

// A path through a descriptor that no image was loaded by. The loader identifies images by path
// before it looks at files, and descriptor numbers are reused.
std::string new_path(const Descriptor& descriptor, const std::string& below, size_t images) {
  const std::string path = path_of(descriptor);
  const size_t last = path.rfind('/');
  return path.substr(0, last) + std::string(images, '/') + path.substr(last) + below;
}

// Extracts the loader's message from Boost's.
std::string loader_text(const std::exception& error, const std::string& path,
                        const std::string& real_path) {
  constexpr std::string_view kBefore = "dlerror system message: ";
  std::string text = error.what();
  const size_t begin = text.find(kBefore), end = text.rfind("): ");
  if (begin != text.npos && end != text.npos && end > begin) {
    text = text.substr(begin + kBefore.size(), end - begin - kBefore.size());
  }
  for (size_t at = 0; (at = text.find(path, at)) != text.npos; at += real_path.size()) {
    text.replace(at, path.size(), real_path);
  }
  return text.find(real_path) == text.npos ? real_path + ": " + text : text;
}

// The loader recognizes a loaded image by device and inode.
bool is_image_of(const std::string& path, void* image) {
  void* found = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (found) dlclose(found);
  return found == image;
}

// Names the image by its path, for dladdr, debuggers and backtraces. The path of a descriptor is
// meaningless once the descriptor is closed.
void name_image(Image& image) {
  link_map* map = nullptr;
  if (dlinfo(image.library.native(), RTLD_DI_LINKMAP, &map) != 0) return;
  image.loaded_as = map->l_name;
  map->l_name = image.path.data();
}

}  // namespace

boost::dll::shared_library& load_image(const TrustedFile& file, bool in_place) {
  static auto& images = *new std::vector<std::unique_ptr<Image>>;
  const std::lock_guard lock(load_mutex());
  for (const auto& known : images) {
    if (known->id == file.id) return known->library;
  }
  auto image = std::make_unique<Image>();
  image->id = file.id;
  image->path = file.path;
  const std::string exact = new_path(file.file, "", images.size());
  std::string path = exact;
  if (in_place) {
    image->directory = Descriptor(fcntl(file.directory.get(), F_DUPFD_CLOEXEC, 0));
    path = new_path(image->directory, "/" + std::filesystem::path(file.path).filename().string(),
                    images.size());
  }
  namespace mode = boost::dll::load_mode;
  const ActiveCall active(kept_text(file.path), "dlopen");  // runs the plugin's static constructors
  try {
    image->library.load(std::filesystem::path(path), mode::rtld_now | mode::rtld_local);
  } catch (const std::exception& e) {
    fail(Code::incompatible, loader_text(e, path, file.path));
  }
  if (in_place && !is_image_of(exact, image->library.native())) {
    fail(Code::incompatible, file.path, " was replaced while it was loaded");
  }
  name_image(*images.emplace_back(std::move(image)));
  return images.back()->library;
}

}  // namespace tenon::core
