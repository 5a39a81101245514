// SPDX-License-Identifier: Apache-2.0
// Reports as files: JSON, JUnit XML.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "report.hpp"

namespace tenon::conform {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Totals& t) {
  return {{"cases", t.all()},
          {"pass", t.pass},
          {"fail", t.fail},
          {"crash", t.crash},
          {"hang", t.hang},
          {"skip", t.skip},
          {"unexpected_pass", t.unexpected_pass},
          {"expected_failure", t.expected_failure}};
}

Json json_of(const std::vector<std::pair<std::string, Totals>>& rows) {
  Json out = Json::object();
  for (const auto& [name, totals] : rows) out[name] = json_of(totals);
  return out;
}

Json json_of(const Entry& e) {
  const Result& r = e.result;
  Json ops = Json::array();
  for (const auto& op : e.chosen->facts.ops) ops.push_back(op_text(op));
  const tenon_dtype dtype = e.chosen->unit.dtype;
  return {{"id", r.id},
          {"requirement", e.of->requirement},
          {"family", r.family},
          {"level", name_of(e.level())},
          {"proof", e.of->proof},
          {"dtype", dtype == TENON_DTYPE_NONE ? Json() : Json(dtype_text(dtype))},
          {"ops", std::move(ops)},
          {"sentence", r.sentence},
          {"result", e.word()},
          {"expected", e.known != nullptr},
          {"reason", r.reason},
          {"refused", r.refused},
          {"output", r.output},
          {"joined", r.joined},
          {"own_joined", r.own_joined},
          {"milliseconds", r.milliseconds}};
}

// The number of bytes of the character at the front, 0 if it is none of XML's.
size_t xml_character(std::string_view s) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(s[k]); };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' || first == '\r';
  const size_t n = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (n == 0 || first >= 0xf5 || s.size() < n) return 0;
  uint32_t code = first & (0xffu >> (n + 1));
  for (size_t k = 1; k < n; ++k) {
    if ((byte(k) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(k) & 0x3f);
  }
  static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool valid = code >= kLeast[n] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) &&
                     code != 0xfffe && code != 0xffff;
  return valid ? n : 0;
}

// Text or the value of an attribute. What XML cannot have becomes U+FFFD.
std::string xml(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t n = xml_character(text);
    const char c = text[0];
    if (n == 0)
      out += "\xef\xbf\xbd";
    else if (n > 1)
      out += text.substr(0, n);
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\n' || c == '\t' || c == '\r')
      out += "&#" + std::to_string(static_cast<int>(c)) + ";";
    else
      out += c;
    text.remove_prefix(std::max<size_t>(n, 1));
  }
  return out;
}

std::string attribute(const char* name, std::string_view value) {
  return std::string(" ") + name + "=\"" + xml(value) + "\"";
}
std::string attribute(const char* name, size_t value) {
  return attribute(name, std::to_string(value));
}
std::string seconds(const char* name, double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f", value);
  return attribute(name, text);
}

// Skipped counts expected failures: a reader of JUnit knows no better word.
std::string counts(const Totals& t) {
  return attribute("tests", t.all()) + attribute("failures", t.fail + t.unexpected_pass) +
         attribute("errors", t.crash + t.hang) + attribute("skipped", t.skip + t.expected_failure);
}

std::string element_of(const Entry& e, const std::string& device) {
  const Result& r = e.result;
  std::string out = "    <testcase" + attribute("name", r.id) +
                    attribute("classname", device + "." + std::string(r.family)) +
                    seconds("time", r.milliseconds / 1000) + ">\n      <properties>\n";
  for (const auto& [name, value] :
       {std::pair<const char*, std::string>{"requirement", e.of->requirement},
        {"level", name_of(e.level())},
        {"sentence", r.sentence}})
    out += "        <property" + attribute("name", std::string_view(name)) +
           attribute("value", value) + "/>\n";
  out += "      </properties>\n";
  const auto element = [&](const char* name, const std::string& message) {
    out += std::string("      <") + name + attribute("type", std::string_view(e.word())) +
           attribute("message", message) + "/>\n";
  };
  if (e.expected_failure())
    out += "      <skipped" +
           attribute("message", std::string("expected ") + e.word() + ": " + r.reason) + "/>\n";
  else if (r.outcome == Outcome::skip)
    out += "      <skipped" + attribute("message", r.reason) + "/>\n";
  else if (e.unexpected_pass())
    element("failure", "passes, but --expect lists it: " + e.known->glob);
  else if (r.outcome == Outcome::fail)
    element("failure", r.reason);
  else if (e.bad())
    element("error", r.reason);
  if (!r.output.empty()) out += "      <system-out>" + xml(r.output) + "</system-out>\n";
  return out + "    </testcase>\n";
}

[[noreturn]] void cannot_write(const std::string& option, const std::string& file) {
  throw std::runtime_error(option + ": cannot write " + file + ": " + std::strerror(errno));
}

bool in_place(const std::string& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

// Behind symbolic links, which stay.
std::filesystem::path target_of(const std::string& file) {
  std::error_code ignored;
  const auto real = std::filesystem::weakly_canonical(file, ignored);
  return real.empty() ? std::filesystem::path(file) : real;
}

// Returns 0, or errno.
int put(const std::string& file, int flags, const std::string& text) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666);
  if (descriptor < 0) return errno;
  int error = 0;
  for (size_t at = 0; at < text.size() && error == 0;) {
    const ssize_t n = ::write(descriptor, text.data() + at, text.size() - at);
    if (n > 0) at += static_cast<size_t>(n);
    if (n < 0 && errno != EINTR) error = errno;
  }
  if (::close(descriptor) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

std::string json_of(const Report& report) {
  const Options& o = report.options;
  const Reached r = reached(report);
  Json out{{"format", 1},
           {"device", o.device},
           {"oracle", o.oracle},
           {"options", o.how},
           {"quick", o.quick},
           {"shard", {o.shard, o.shards}},
           {"cases_of_kit", report.selection.kit},
           {"cases_selected", report.selection.cases},
           {"not_run", report.not_run},
           {"interrupted", report.signal != 0},
           {"seconds", report.seconds},
           {"totals", json_of(report.totals())},
           {"families", json_of(report.families())},
           {"levels", json_of(report.levels())},
           {"level",
            {{"judged", r.judged},
             {"reached", r.level ? Json(name_of(*r.level)) : Json()},
             {"missing", r.missing}}},
           {"skips", Json::array()},
           {"cases", Json::array()}};
  for (const auto& [reason, count] : report.skips())
    out["skips"].push_back({{"reason", reason}, {"cases", count}});
  for (const Entry& e : report.entries) out["cases"].push_back(json_of(e));
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string junit_of(const Report& report) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites" +
                    attribute("name", std::string_view("tenon_conform")) + counts(report.totals()) +
                    seconds("time", report.seconds) + ">\n";
  for (const auto& [family, totals] : report.families()) {
    double spent = 0;
    std::string cases;
    for (const Entry& e : report.entries)
      if (e.result.family == family) {
        cases += element_of(e, report.options.device);
        spent += e.result.milliseconds / 1000;
      }
    out += "  <testsuite" + attribute("name", family) + counts(totals) + seconds("time", spent) +
           ">\n" + cases + "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

void write_file(const std::string& option, const std::string& file, const std::string& text) {
  if (file == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
      cannot_write(option, "standard output");
    return;
  }
  if (in_place(file)) {
    errno = put(file, 0, text);
    if (errno != 0) cannot_write(option, file);
    return;
  }
  const std::string target = target_of(file);
  std::string temporary;
  int error = EEXIST;  // a file of another process is left alone
  for (int attempt = 0; error == EEXIST && attempt < 100; ++attempt) {
    temporary = target + "." + std::to_string(::getpid()) + "-" + std::to_string(attempt) + ".tmp";
    error = put(temporary, O_CREAT | O_EXCL, text);
  }
  if (error == 0 && ::rename(temporary.c_str(), target.c_str()) == 0) return;
  if (error == 0) error = errno;
  if (error != EEXIST) ::unlink(temporary.c_str());
  errno = error;
  cannot_write(option, file);
}

void check_writable(const std::string& option, const std::string& file) {
  if (file.empty() || file == "-") return;
  if (std::filesystem::is_directory(file)) {
    errno = EISDIR;
    cannot_write(option, file);
  }
  const std::string folder =
      in_place(file) ? file : std::string(std::filesystem::absolute(target_of(file)).parent_path());
  if (::access(folder.c_str(), W_OK) != 0) cannot_write(option, file);
}

}  // namespace tenon::conform
