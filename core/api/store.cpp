// SPDX-License-Identifier: Apache-2.0
// C functions for the store and its files.
#include "api/door.hpp"
#include "api/tensor.hpp"
#include "base/number.hpp"
#include "import/safetensors.hpp"

using namespace tenon::core;

struct tenon_safetensors {
  explicit tenon_safetensors(const std::string& path) : file(path), map(file.map()) {}
  const SafetensorsEntry& at(uint32_t index) const {
    if (index >= file.tensors().size())
      fail(Code::not_found, "tensor ", index, ": there are ", file.tensors().size());
    return file.tensors()[index];
  }

  SafetensorsFile file;
  std::shared_ptr<const MappedFile> map;
};

Space tenon::core::space_from(uint32_t space) {
  if (space != TENON_SPACE_WEIGHT && space != TENON_SPACE_STATE)
    fail(Code::invalid_argument, "a store holds weights and state, got space ", space);
  return static_cast<Space>(space);
}

namespace {

// The half-precision weight whose master a state is (api/optimizer.cpp), or an absent value.
Value weight_of_master(const Graph& g, Value state) {
  constexpr std::string_view kEnd = ".master";
  const std::string& name = g[state].name;
  if (!name.ends_with(kEnd)) return {};
  const Value w = g.find(Space::weight, name.substr(0, name.size() - kEnd.size()));
  if (!w || !is_float(g.type(w).dtype) || acc_dtype(g.type(w).dtype) == g.type(w).dtype) return {};
  return g.type(state) == Type{acc_dtype(g.type(w).dtype), g.type(w).shape} ? w : Value{};
}

// A master starts as its widened weight; all other state starts as zeros.
Bytes first_content(const Graph& g, Value state, Store& store) {
  Bytes content(type_bytes(g.type(state)));
  const Value w = weight_of_master(g, state);
  if (!w) return content;
  const Type& type = g.type(w);
  if (store.type(Space::weight, g[w].name) != type)
    fail(Code::dtype_mismatch, "state '", g[state].name, "': its weight is ", type.text(),
         " in the graph and ", store.type(Space::weight, g[w].name).text(), " in the store");
  Bytes half(type_bytes(type));
  store.get(Space::weight, g[w].name, half.data(), half.size());
  const size_t from = tenon_dtype_bits(type.dtype) / 8,
               to = tenon_dtype_bits(g.type(state).dtype) / 8;
  for (size_t i = 0; i * from < half.size(); ++i) {
    double value = 0;
    check(load_number(type.dtype, half.data() + i * from, &value) &&
              store_number(g.type(state).dtype, content.data() + i * to, value),
          "master of a dtype without numbers");
  }
  return content;
}
}  // namespace

std::shared_ptr<const std::vector<std::string>> tenon_store::names(Space space) {
  // Read before the list is made: an entry that comes meanwhile makes the list stale.
  const uint64_t version = store->version();
  const std::lock_guard lock(names_mutex_);
  Names& names = names_[space];
  if (names.version != version)
    names = {version, std::make_shared<const std::vector<std::string>>(store->names(space))};
  return names.list;
}

tenon_status* tenon_store_create(tenon_runtime* runtime, tenon_store** out_store) {
  return door("tenon_store_create", [&] {
    auto store = std::make_unique<tenon_store>();
    store->runtime = need(runtime, "runtime").runtime;
    store->store = std::make_shared<Store>();
    need(out_store, "out_store");
    *out_store = store.release();
  });
}

void tenon_store_destroy(tenon_store* store) { delete store; }

tenon_status* tenon_store_set(tenon_store* store, uint32_t space, tenon_str name,
                              const tenon_tensor* tensor) {
  return door("tenon_store_set", [&] {
    const auto& runtime = need(store, "store").runtime;
    const HostTensor t = host_tensor(*runtime, tensor, view(name));
    store->store->set(space_from(space), std::string(view(name)), t.type, t.content);
  });
}

tenon_status* tenon_store_borrow(tenon_store* store, uint32_t space, tenon_str name,
                                 const tenon_tensor* tensor, void (*release)(void* user),
                                 void* user) {
  return door("tenon_store_borrow", [&] {
    need(store, "store");
    const std::string key(view(name));
    const HostTensor t = host_tensor(tensor, key);
    if (!t.gathered.empty())
      fail(Code::invalid_argument, "'", key, "' has strides; expected a dense tensor");
    struct Owner {
      void (*release)(void*) = nullptr;
      void* user = nullptr;
      ~Owner() {
        if (release) release(user);
      }
    };
    const auto owner = std::make_shared<Owner>();
    store->store->borrow(space_from(space), key, t.type, t.content, owner);
    // From here on: after a failure the memory stays the caller's. `owner` is still held, so that
    // nobody has released it yet.
    owner->release = release, owner->user = user;
  });
}

tenon_status* tenon_store_get(tenon_store* store, uint32_t space, tenon_str name, void* data,
                              uint64_t size) {
  return door("tenon_store_get", [&] {
    if (size) need(static_cast<char*>(data), "data");
    need(store, "store").store->get(space_from(space), std::string(view(name)), data, size);
  });
}

tenon_status* tenon_store_type(tenon_store* store, uint32_t space, tenon_str name,
                               tenon_tensor_type* out_type) {
  return door("tenon_store_type", [&] {
    need(out_type, "out_type");
    give(*out_type,
         to_c(need(store, "store").store->type(space_from(space), std::string(view(name)))),
         "out_type");
  });
}

uint32_t tenon_store_count(tenon_store* store, uint32_t space) {
  if (!store || (space != TENON_SPACE_WEIGHT && space != TENON_SPACE_STATE)) return 0;
  try {
    return static_cast<uint32_t>(store->names(static_cast<Space>(space))->size());
  } catch (const std::exception&) {  // no memory for the list
    return 0;
  }
}

tenon_status* tenon_store_name(tenon_store* store, uint32_t space, uint32_t index,
                               tenon_text** out_name) {
  return door("tenon_store_name", [&] {
    const auto names = need(store, "store").names(space_from(space));
    if (index >= names->size())
      fail(Code::not_found, "name ", index, ": the store has ", names->size());
    need(out_name, "out_name");
    *out_name = new tenon_text{(*names)[index]};
  });
}

tenon_status* tenon_store_add_missing(tenon_store* store, const tenon_graph* graph) {
  return door("tenon_store_add_missing", [&] {
    const Graph& g = need(graph, "graph").graph;
    Store& s = *need(store, "store").store;
    for (Value v : g.states())
      if (!s.has(Space::state, g[v].name))
        s.set(Space::state, g[v].name, g.type(v), first_content(g, v, s));
  });
}

tenon_status* tenon_store_remove(tenon_store* store, uint32_t space, tenon_str name) {
  return door("tenon_store_remove", [&] {
    need(store, "store").store->remove(space_from(space), std::string(view(name)));
  });
}

tenon_status* tenon_store_load(tenon_store* store, uint32_t space, tenon_str path) {
  return door("tenon_store_load", [&] {
    Store& s = *need(store, "store").store;
    const Space sp = space_from(space);
    const SafetensorsFile file{std::string(view(path))};
    for (const auto& t : file.tensors()) s.set(sp, t.name, t.type, file.content(t));
  });
}

tenon_status* tenon_store_save(tenon_store* store, uint32_t space, tenon_str path,
                               const tenon_str* metadata, uint32_t count) {
  return door("tenon_store_save", [&] {
    Store& s = *need(store, "store").store;
    const Space sp = space_from(space);
    if (count) need(metadata, "metadata");
    std::map<std::string, std::string> pairs;
    for (uint32_t i = 0; i < count; ++i)
      pairs.emplace(view(metadata[2 * i]), view(metadata[2 * i + 1]));
    std::vector<SafetensorsEntry> entries;
    for (const std::string& name : s.names(sp)) entries.push_back({name, s.type(sp, name), 0, 0});
    write_safetensors(std::string(view(path)), std::move(entries), pairs,
                      [&](const SafetensorsEntry& e) {
                        Bytes bytes(type_bytes(e.type));
                        s.get(sp, e.name, bytes.data(), bytes.size());
                        return bytes;
                      });
  });
}

tenon_status* tenon_safetensors_tensors(tenon_str path,
                                        void (*each)(void* user, tenon_str name,
                                                     const tenon_tensor_type* type),
                                        void* user) {
  return door("tenon_safetensors_tensors", [&] {
    if (!each) fail(Code::invalid_argument, "each is NULL");
    const SafetensorsFile file{std::string(view(path))};
    for (const SafetensorsEntry& t : file.tensors()) {
      const tenon_tensor_type type = to_c(t.type);
      each(user, c_str(t.name), &type);
    }
  });
}

tenon_status* tenon_safetensors_metadata(tenon_str path, tenon_text** out_json) {
  return door("tenon_safetensors_metadata", [&] {
    need(out_json, "out_json");
    *out_json = new tenon_text{SafetensorsFile{std::string(view(path))}.metadata_json()};
  });
}

tenon_status* tenon_safetensors_open(tenon_str path, tenon_safetensors** out_file) {
  return door("tenon_safetensors_open", [&] {
    need(out_file, "out_file");
    *out_file = new tenon_safetensors(std::string(view(path)));
  });
}

void tenon_safetensors_destroy(tenon_safetensors* file) { delete file; }

uint32_t tenon_safetensors_count(const tenon_safetensors* file) {
  return file ? static_cast<uint32_t>(file->file.tensors().size()) : 0;
}

tenon_status* tenon_safetensors_get(const tenon_safetensors* file, uint32_t index,
                                    tenon_str* out_name, tenon_tensor* out_tensor) {
  return door("tenon_safetensors_get", [&] {
    const SafetensorsEntry& e = need(file, "file").at(index);
    const auto content = file->file.content_in(*file->map, e);
    tenon_tensor out{};
    out.dims = e.type.shape.begin();
    out.data = const_cast<std::byte*>(content.data());
    out.size = content.size();
    out.rank = static_cast<uint32_t>(e.type.shape.rank());
    out.dtype = e.type.dtype;
    out.flags = TENON_TENSOR_READ_ONLY;
    need(out_name, "out_name");
    give(need(out_tensor, "out_tensor"), out, "out_tensor");
    *out_name = c_str(e.name);
  });
}

tenon_status* tenon_safetensors_load(const tenon_safetensors* file, uint32_t index,
                                     tenon_store* store, uint32_t space, tenon_str name) {
  return door("tenon_safetensors_load", [&] {
    const SafetensorsEntry& e = need(file, "file").at(index);
    need(store, "store")
        .store->borrow(space_from(space), std::string(view(name)), e.type,
                       file->file.content_in(*file->map, e), file->map);
  });
}
