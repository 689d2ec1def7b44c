// Interface of testlib for checkers, written for Plumbline.
//
// Checkers written for testlib (https://github.com/MikeMirzayanov/testlib) compile with it unchanged:
// streams, results and helpers have the names, meaning and exit codes that checkers rely on.
// Validators, generators and interactors are not supported. A checker that needs anything else has
// the original header in its source, in place of the include.
#ifndef PLUMBLINE_TESTLIB_H_
#define PLUMBLINE_TESTLIB_H_
#define _TESTLIB_H_

#include <algorithm>
#include <cctype>
#include <climits>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <sstream>
#include <stack>
#include <string>
#include <utility>
#include <vector>

#define VERSION "plumbline"
#ifndef LF
#define LF ((char)10)
#define CR ((char)13)
#define TAB ((char)9)
#define SPACE ((char)' ')
#define EOFC (255)
#endif

// Exit codes

#ifndef OK_EXIT_CODE
#define OK_EXIT_CODE 0
#endif
#ifndef WA_EXIT_CODE
#define WA_EXIT_CODE 1
#endif
#ifndef PE_EXIT_CODE
#define PE_EXIT_CODE 2
#endif
#ifndef FAIL_EXIT_CODE
#define FAIL_EXIT_CODE 3
#endif
#ifndef DIRT_EXIT_CODE
#define DIRT_EXIT_CODE 4
#endif
#ifndef POINTS_EXIT_CODE
#define POINTS_EXIT_CODE 7
#endif
#ifndef UNEXPECTED_EOF_EXIT_CODE
#define UNEXPECTED_EOF_EXIT_CODE 8
#endif
// testlib's default of 0 would make partial results look like other ones.
#ifndef PC_BASE_EXIT_CODE
#define PC_BASE_EXIT_CODE 50
#endif

enum TResult {
    _ok = 0,
    _wa = 1,
    _pe = 2,
    _fail = 3,
    _dirt = 4,
    _points = 5,
    _unexpected_eof = 8,
    _partially = 16
};
#define _pc(exitCode) (TResult((exitCode) + (_partially)))

enum TMode { _input, _output, _answer };
enum TTestlibMode { _unknown, _checker, _validator, _generator, _interactor, _scorer };

// Text

inline std::string __plumbline_format(const std::string &wanted, va_list args) {
    const char *fmt = wanted.c_str();
    va_list copy;
    va_copy(copy, args);
    int size = vsnprintf(nullptr, 0, fmt, copy);
    va_end(copy);
    if (size < 0) return std::string();
    std::string text(static_cast<size_t>(size) + 1, '\0');
    vsnprintf(&text[0], text.size(), fmt, args);
    text.resize(static_cast<size_t>(size));
    return text;
}

#define PLUMBLINE_FORMATTED(fmt, text)                       \
    std::string text;                                        \
    do {                                                     \
        va_list arguments_;                                  \
        va_start(arguments_, fmt);                           \
        text = __plumbline_format(fmt, arguments_);          \
        va_end(arguments_);                                  \
    } while (0)

#define PLUMBLINE_PRINTF(at) __attribute__((format(printf, at, at + 1)))

inline std::string format(const char *fmt, ...) {
    PLUMBLINE_FORMATTED(fmt, text);
    return text;
}

inline std::string format(std::string fmt, ...) {
    PLUMBLINE_FORMATTED(fmt, text);
    return text;
}

inline std::string upperCase(std::string text) {
    for (char &c : text)
        if ('a' <= c && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    return text;
}

inline std::string lowerCase(std::string text) {
    for (char &c : text)
        if ('A' <= c && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
}

inline std::string toUpperCase(const std::string &text) { return upperCase(text); }
inline std::string toLowerCase(const std::string &text) { return lowerCase(text); }

inline bool isEof(int c) { return c == EOF; }
inline bool isEoln(int c) { return c == '\n' || c == '\r'; }
inline bool isBlanks(int c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; }

inline std::string trim(const std::string &text) {
    size_t first = 0, last = text.size();
    while (first < last && isBlanks(text[first])) first++;
    while (first < last && isBlanks(text[last - 1])) last--;
    return text.substr(first, last - first);
}

inline std::string compress(const std::string &text) {
    return text.size() <= 64 ? text : text.substr(0, 30) + "..." + text.substr(text.size() - 31);
}

template <typename T>
std::string vtos(const T &value) {
    std::ostringstream stream;
    stream << value;
    return stream.str();
}

template <typename T>
std::string toString(const T &value) {
    return vtos(value);
}

inline std::string toHumanReadableString(long long value) { return vtos(value); }

template <typename Iterator>
std::string join(Iterator first, Iterator last, const std::string &separator) {
    std::string text;
    for (Iterator at = first; at != last; ++at) {
        if (at != first) text += separator;
        text += vtos(*at);
    }
    return text;
}

template <typename Iterator>
std::string join(Iterator first, Iterator last) {
    return join(first, last, std::string(" "));
}

template <typename Collection>
std::string join(const Collection &collection, const std::string &separator) {
    return join(collection.begin(), collection.end(), separator);
}

template <typename Collection>
std::string join(const Collection &collection) {
    return join(collection.begin(), collection.end(), std::string(" "));
}

inline std::vector<std::string> split(const std::string &text, const std::string &separators) {
    std::vector<std::string> parts(1);
    for (char c : text) {
        if (separators.find(c) == std::string::npos)
            parts.back() += c;
        else
            parts.push_back(std::string());
    }
    return parts;
}

inline std::vector<std::string> split(const std::string &text, char separator) {
    return split(text, std::string(1, separator));
}

inline std::vector<std::string> tokenize(const std::string &text, const std::string &separators) {
    std::vector<std::string> found;
    for (const std::string &part : split(text, separators))
        if (!part.empty()) found.push_back(part);
    return found;
}

inline std::vector<std::string> tokenize(const std::string &text, char separator) {
    return tokenize(text, std::string(1, separator));
}

inline std::string englishEnding(long long number) {
    long long last = std::llabs(number % 100);
    if (last / 10 == 1) return "th";
    switch (last % 10) {
        case 1: return "st";
        case 2: return "nd";
        case 3: return "rd";
        default: return "th";
    }
}

// Numbers

template <typename T>
inline T __testlib_abs(const T &x) {
    return x > 0 ? x : -x;
}
template <typename T>
inline T __testlib_min(const T &a, const T &b) {
    return a < b ? a : b;
}
template <typename T>
inline T __testlib_max(const T &a, const T &b) {
    return a > b ? a : b;
}

inline bool __testlib_isNaN(double x) { return std::isnan(x); }
inline bool __testlib_isInfinite(double x) { return std::isinf(x); }

inline bool doubleCompare(double expected, double result, double error) {
    error += 1e-15;
    if (std::isnan(expected)) return std::isnan(result);
    if (std::isinf(expected)) return std::isinf(result) && (expected > 0) == (result > 0);
    if (std::isnan(result) || std::isinf(result)) return false;
    if (std::fabs(result - expected) <= error) return true;
    double low = std::min(expected * (1.0 - error), expected * (1.0 + error));
    double high = std::max(expected * (1.0 - error), expected * (1.0 + error));
    return low <= result && result <= high;
}

inline double doubleDelta(double expected, double result) {
    double absolute = std::fabs(result - expected);
    return std::fabs(expected) > 1e-9 ? std::min(absolute, absolute / std::fabs(expected))
                                      : absolute;
}

// Patterns: characters, \escapes, [sets], (groups), alternatives, and the counts ? * + {n} {n,m}

class pattern {
  public:
    pattern(const std::string &source) : source_(source) {}
    bool matches(const std::string &text) const {
        return alternatives(0, source_.size(), text, 0,
                            [&](size_t end) { return end == text.size(); });
    }
    std::string src() const { return source_; }

  private:
    typedef std::function<bool(size_t)> Next;
    std::string source_;

    bool alternatives(size_t from, size_t to, const std::string &text, size_t at,
                      const Next &next) const {
        int depth = 0;
        size_t begin = from;
        for (size_t i = from; i <= to; i++) {
            char c = i < to ? source_[i] : '|';
            if (c == '\\' && i + 1 < to) {
                i++;
            } else if (c == '[' && i < to) {
                i = end_of_set(i, to) - 1;
            } else if (c == '(') {
                depth++;
            } else if (c == ')') {
                depth--;
            } else if (c == '|' && depth == 0) {
                if (sequence(begin, i, text, at, next)) return true;
                begin = i + 1;
            }
        }
        return false;
    }

    bool sequence(size_t from, size_t to, const std::string &text, size_t at,
                  const Next &next) const {
        if (from >= to) return next(at);
        size_t after = end_of_atom(from, to);
        size_t rest = after;
        int least = 1, most = 1;
        counts(rest, to, least, most);
        return repeat(from, after, least, most, text, at,
                      [&](size_t end) { return sequence(rest, to, text, end, next); });
    }

    bool repeat(size_t from, size_t to, int least, int most, const std::string &text, size_t at,
                const Next &next) const {
        if (source_[from] != '(') {
            // One character each: count greedily, then give back.
            size_t end = at;
            while (end < text.size() && static_cast<int>(end - at) < most &&
                   one(from, to, text[end]))
                end++;
            for (;; end--) {
                if (static_cast<int>(end - at) < least) return false;
                if (next(end)) return true;
                if (end == at) return false;
            }
        }
        if (most > 0 && alternatives(from + 1, to - 1, text, at, [&](size_t end) {
                return end > at && repeat(from, to, least - 1, most - 1, text, end, next);
            }))
            return true;
        return least <= 0 && next(at);
    }

    bool one(size_t from, size_t to, char c) const {
        if (source_[from] == '\\') return c == source_[from + 1];
        if (source_[from] != '[') return c == source_[from];
        bool inverted = source_[from + 1] == '^', found = false;
        for (size_t i = from + 1 + inverted; i + 1 < to; i++) {
            if (source_[i] == '\\') i++;
            char low = source_[i], high = low;
            if (i + 3 < to && source_[i + 1] == '-') {
                i += source_[i + 2] == '\\' ? 3 : 2;
                high = source_[i];
            }
            found = found || (low <= c && c <= high);
        }
        return found != inverted;
    }

    size_t end_of_set(size_t at, size_t to) const {
        for (size_t i = at + 1; i < to; i++) {
            if (source_[i] == '\\')
                i++;
            else if (source_[i] == ']')
                return i + 1;
        }
        return to;
    }

    size_t end_of_atom(size_t at, size_t to) const {
        if (source_[at] == '\\') return std::min(at + 2, to);
        if (source_[at] == '[') return end_of_set(at, to);
        if (source_[at] != '(') return at + 1;
        int depth = 0;
        for (size_t i = at; i < to; i++) {
            if (source_[i] == '\\')
                i++;
            else if (source_[i] == '[')
                i = end_of_set(i, to) - 1;
            else if (source_[i] == '(')
                depth++;
            else if (source_[i] == ')' && --depth == 0)
                return i + 1;
        }
        return to;
    }

    void counts(size_t &at, size_t to, int &least, int &most) const {
        if (at >= to) return;
        char c = source_[at];
        if (c == '?' || c == '*' || c == '+') {
            least = c == '+' ? 1 : 0;
            most = c == '?' ? 1 : INT_MAX;
            at++;
        } else if (c == '{') {
            size_t close = source_.find('}', at);
            if (close == std::string::npos || close >= to) return;
            std::string inside = source_.substr(at + 1, close - at - 1);
            size_t comma = inside.find(',');
            std::string first = inside.substr(0, comma);
            least = first.empty() ? 0 : atoi(first.c_str());
            most = comma == std::string::npos  ? least
                   : comma + 1 == inside.size() ? INT_MAX
                                                : atoi(inside.c_str() + comma + 1);
            at = close + 1;
        }
    }
};

// Pseudo-random numbers; not those of testlib, whose sequence no checker may depend on

class random_t {
  public:
    void setSeed(long long seed) { state_ = static_cast<unsigned long long>(seed); }
    unsigned long long bits() {
        state_ += 0x9e3779b97f4a7c15ULL;
        unsigned long long z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }
    double next() { return static_cast<double>(bits() >> 11) / 9007199254740992.0; }
    int next(int n) { return static_cast<int>(bits() % static_cast<unsigned long long>(n)); }
    long long next(long long n) {
        return static_cast<long long>(bits() % static_cast<unsigned long long>(n));
    }
    int next(int low, int high) {
        return static_cast<int>(next(static_cast<long long>(low), static_cast<long long>(high)));
    }
    long long next(long long low, long long high) {
        return low + static_cast<long long>(bits() %
                                            (static_cast<unsigned long long>(high - low) + 1));
    }
    double next(double n) { return n * next(); }
    double next(double low, double high) { return low + (high - low) * next(); }
    template <typename Container>
    typename Container::value_type any(const Container &c) {
        typename Container::const_iterator at = c.begin();
        std::advance(at, next(static_cast<long long>(c.size())));
        return *at;
    }

  private:
    unsigned long long state_ = 0x5eed;
};

static random_t rnd;

template <typename Iterator>
void shuffle(Iterator first, Iterator last) {
    for (long long i = 1, size = last - first; i < size; i++)
        std::iter_swap(first + i, first + rnd.next(i + 1));
}

// Streams

class InStream {
  public:
    TMode mode = _input;
    std::string name;
    bool strict = false;
    bool opened = false;

    void init(const std::string &path, TMode wanted) {
        mode = wanted;
        name = path;
        std::ifstream file(path.c_str(), std::ios::binary);
        if (!file) quit(wanted == _output ? _pe : _fail, "File not found: \"" + path + "\"");
        std::ostringstream content;
        content << file.rdbuf();
        text_ = content.str();
        at_ = 0;
        opened = true;
    }

    void reset() { at_ = 0; }
    void close() { at_ = text_.size(); }
    void setTestCase(int testCase) { testCase_ = testCase; }

    // Characters

    bool eof() const { return at_ >= text_.size(); }
    int curChar() const { return eof() ? EOF : static_cast<unsigned char>(text_[at_]); }
    int nextChar() { return eof() ? EOF : static_cast<unsigned char>(text_[at_++]); }
    void skipChar() { at_ += eof() ? 0 : 1; }
    void unreadChar(int) { at_ -= at_ > 0 ? 1 : 0; }
    void skipBlanks() {
        while (!eof() && isBlanks(curChar())) at_++;
    }
    bool eoln() {
        if (eof() || curChar() == '\n') return true;
        return curChar() == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n';
    }
    bool seekEof() {
        skipBlanks();
        return eof();
    }
    bool seekEoln() {
        while (curChar() == ' ' || curChar() == '\t') at_++;
        return eoln();
    }
    void nextLine() { readString(); }

    char readChar() {
        if (eof()) quit(_unexpected_eof, "Unexpected end of file - character expected");
        return static_cast<char>(nextChar());
    }
    char readChar(char wanted) {
        char found = readChar();
        if (found != wanted)
            quit(_pe, "Unexpected character '" + std::string(1, found) + "', but '" +
                          std::string(1, wanted) + "' expected");
        return found;
    }
    char readSpace() { return readChar(' '); }
    void readEoln() {
        if (eof() || !eoln()) quit(_pe, "Expected EOLN");
        if (curChar() == '\r') at_++;
        at_++;
    }
    void readEof() {
        if (!eof()) quit(_pe, "Expected EOF");
    }

    // Words and lines

    std::string readWord() {
        skipBlanks();
        if (eof()) quit(_unexpected_eof, "Unexpected end of file - token expected");
        size_t begin = at_;
        while (!eof() && !isBlanks(curChar())) at_++;
        return text_.substr(begin, at_ - begin);
    }
    std::string readWord(const std::string &wanted, const std::string &variable = "") {
        return matching(readWord(), pattern(wanted), "Token", variable);
    }
    std::string readWord(const pattern &wanted, const std::string &variable = "") {
        return matching(readWord(), wanted, "Token", variable);
    }
    std::string readWord(int low, int high, const std::string &wanted,
                         const std::string &variable = "") {
        return sized(readWord(wanted, variable), low, high, variable);
    }
    std::string readToken() { return readWord(); }
    std::string readToken(const std::string &wanted, const std::string &variable = "") {
        return readWord(wanted, variable);
    }
    std::string readToken(const pattern &wanted, const std::string &variable = "") {
        return readWord(wanted, variable);
    }
    void readWordTo(std::string &result) { result = readWord(); }
    void readTokenTo(std::string &result) { result = readWord(); }
    void readWordTo(std::string &result, const std::string &wanted,
                    const std::string &variable = "") {
        result = readWord(wanted, variable);
    }
    void readTokenTo(std::string &result, const std::string &wanted,
                     const std::string &variable = "") {
        result = readWord(wanted, variable);
    }

    std::string readString() {
        if (eof()) quit(_unexpected_eof, "Expected line");
        size_t begin = at_;
        while (!eoln()) at_++;
        std::string line = text_.substr(begin, at_ - begin);
        if (!eof()) readEoln();
        return line;
    }
    std::string readString(const std::string &wanted, const std::string &variable = "") {
        return matching(readString(), pattern(wanted), "Line", variable);
    }
    std::string readString(const pattern &wanted, const std::string &variable = "") {
        return matching(readString(), wanted, "Line", variable);
    }
    std::string readLine() { return readString(); }
    std::string readLine(const std::string &wanted, const std::string &variable = "") {
        return readString(wanted, variable);
    }
    std::string readLine(const pattern &wanted, const std::string &variable = "") {
        return readString(wanted, variable);
    }
    void readStringTo(std::string &result) { result = readString(); }
    void readLineTo(std::string &result) { result = readString(); }
    void readStringTo(std::string &result, const std::string &wanted,
                      const std::string &variable = "") {
        result = readString(wanted, variable);
    }
    void readLineTo(std::string &result, const std::string &wanted,
                    const std::string &variable = "") {
        result = readString(wanted, variable);
    }

    // Numbers

    long long readLong() { return toLong(readWord()); }
    long long toLong(const std::string &word) {
        if (word.empty()) quit(_pe, "Expected integer, but \"\" found");
        size_t begin = word[0] == '-' ? 1 : 0;
        bool good = begin < word.size() && word.size() <= 20 && digits(word, begin);
        good = good && (word[begin] != '0' || word == "0");
        if (good) {
            std::string bound = begin ? "9223372036854775808" : "9223372036854775807";
            std::string number = word.substr(begin);
            good = number.size() < bound.size() ||
                   (number.size() == bound.size() && number <= bound);
        }
        if (!good) quit(_pe, "Expected integer, but \"" + compress(word) + "\" found");
        return strtoll(word.c_str(), nullptr, 10);
    }
    long long readLong(long long low, long long high, const std::string &variable = "") {
        return within(readLong(), low, high, "Integer", variable);
    }
    unsigned long long readUnsignedLong() {
        std::string word = readWord(), bound = "18446744073709551615";
        bool good = digits(word, 0) && (word[0] != '0' || word == "0") &&
                    (word.size() < bound.size() || (word.size() == bound.size() && word <= bound));
        if (!good) quit(_pe, "Expected unsigned integer, but \"" + compress(word) + "\" found");
        return strtoull(word.c_str(), nullptr, 10);
    }
    unsigned long long readUnsignedLong(unsigned long long low, unsigned long long high,
                                        const std::string &variable = "") {
        return within(readUnsignedLong(), low, high, "Unsigned integer", variable);
    }
    int readInt() {
        long long value = readLong();
        if (value < INT_MIN || value > INT_MAX)
            quit(_pe, "Expected int32, but \"" + vtos(value) + "\" found");
        return static_cast<int>(value);
    }
    int readInt(int low, int high, const std::string &variable = "") {
        return within(readInt(), low, high, "Integer", variable);
    }
    int readInteger() { return readInt(); }
    int readInteger(int low, int high, const std::string &variable = "") {
        return readInt(low, high, variable);
    }
    double readDouble() { return toDouble(readWord()); }
    double toDouble(const std::string &word) {
        if (word.empty() || !decimal(word)) quit(_pe, "Expected double, but \"" + compress(word) + "\" found");
        double value = strtod(word.c_str(), nullptr);
        if (!std::isfinite(value))
            quit(_pe, "Expected double, but \"" + compress(word) + "\" found");
        return value;
    }
    double readDouble(double low, double high, const std::string &variable = "") {
        return within(readDouble(), low, high, "Double", variable);
    }
    double readReal() { return readDouble(); }
    double readReal(double low, double high, const std::string &variable = "") {
        return readDouble(low, high, variable);
    }
    double readStrictDouble(double low, double high, int least = 0, int most = 100,
                            const std::string &variable = "") {
        skipBlanks();
        size_t begin = at_;
        double value = readDouble(low, high, variable);
        std::string word = text_.substr(begin, at_ - begin);
        size_t dot = word.find('.');
        int after = dot == std::string::npos ? 0 : static_cast<int>(word.size() - dot - 1);
        if (word.find_first_of("eE") != std::string::npos || after < least || after > most)
            quit(_pe, "Expected strict double, but \"" + compress(word) + "\" found");
        return value;
    }
    double readStrictReal(double low, double high, int least = 0, int most = 100,
                          const std::string &variable = "") {
        return readStrictDouble(low, high, least, most, variable);
    }

    // Many at once

    std::vector<int> readInts(int size, int low, int high, const std::string &variable = "",
                              int = 1) {
        return many<int>(size, [&] { return readInt(low, high, variable); });
    }
    std::vector<int> readInts(int size) {
        return many<int>(size, [&] { return readInt(); });
    }
    std::vector<int> readIntegers(int size, int low, int high, const std::string &variable = "",
                                  int = 1) {
        return readInts(size, low, high, variable);
    }
    std::vector<int> readIntegers(int size) { return readInts(size); }
    std::vector<long long> readLongs(int size, long long low, long long high,
                                     const std::string &variable = "", int = 1) {
        return many<long long>(size, [&] { return readLong(low, high, variable); });
    }
    std::vector<long long> readLongs(int size) {
        return many<long long>(size, [&] { return readLong(); });
    }
    std::vector<double> readDoubles(int size) {
        return many<double>(size, [&] { return readDouble(); });
    }
    std::vector<double> readDoubles(int size, double low, double high,
                                    const std::string &variable = "", int = 1) {
        return many<double>(size, [&] { return readDouble(low, high, variable); });
    }
    std::vector<double> readReals(int size) { return readDoubles(size); }
    std::vector<std::string> readWords(int size) {
        return many<std::string>(size, [&] { return readWord(); });
    }
    std::vector<std::string> readWords(int size, const std::string &wanted,
                                       const std::string &variable = "", int = 1) {
        return many<std::string>(size, [&] { return readWord(wanted, variable); });
    }
    std::vector<std::string> readTokens(int size) { return readWords(size); }
    std::vector<std::string> readTokens(int size, const std::string &wanted,
                                        const std::string &variable = "", int = 1) {
        return readWords(size, wanted, variable);
    }
    std::vector<std::string> readStrings(int size) {
        return many<std::string>(size, [&] { return readString(); });
    }
    std::vector<std::string> readLines(int size) { return readStrings(size); }
    std::vector<std::string> readLines(int size, const std::string &wanted,
                                       const std::string &variable = "", int = 1) {
        return many<std::string>(size, [&] { return readString(wanted, variable); });
    }

    // Results

    [[noreturn]] void quit(TResult result, const std::string &message);
    [[noreturn]] void quitf(TResult result, const char *fmt, ...) PLUMBLINE_PRINTF(3) {
        PLUMBLINE_FORMATTED(fmt, text);
        quit(result, text);
    }
    void quitif(bool condition, TResult result, const char *fmt, ...) PLUMBLINE_PRINTF(4) {
        PLUMBLINE_FORMATTED(fmt, text);
        if (condition) quit(result, text);
    }
    [[noreturn]] void quits(TResult result, const std::string &message) { quit(result, message); }
    void ensuref(bool condition, const char *fmt, ...) PLUMBLINE_PRINTF(3) {
        PLUMBLINE_FORMATTED(fmt, text);
        if (!condition) quit(_wa, text);
    }

  private:
    std::string text_;
    size_t at_ = 0;
    int testCase_ = 0;

    static bool digits(const std::string &word, size_t begin) {
        for (size_t i = begin; i < word.size(); i++)
            if (word[i] < '0' || word[i] > '9') return false;
        return begin < word.size();
    }
    static bool decimal(const std::string &word) {
        size_t i = word[0] == '-' || word[0] == '+' ? 1 : 0, found = 0;
        for (; i < word.size() && isdigit(static_cast<unsigned char>(word[i])); i++) found++;
        if (i < word.size() && word[i] == '.')
            for (i++; i < word.size() && isdigit(static_cast<unsigned char>(word[i])); i++) found++;
        if (!found) return false;
        if (i < word.size() && (word[i] == 'e' || word[i] == 'E')) {
            i++;
            if (i < word.size() && (word[i] == '-' || word[i] == '+')) i++;
            return digits(word, i);
        }
        return i == word.size();
    }
    template <typename T>
    T within(T value, T low, T high, const char *kind, const std::string &variable) {
        if (value < low || value > high) {
            std::string what = variable.empty() ? "" : " parameter [name=" + variable + "]";
            quit(_wa, kind + what + " equals to " + vtos(value) + ", violates the range [" +
                          vtos(low) + ", " + vtos(high) + "]");
        }
        return value;
    }
    std::string matching(const std::string &found, const pattern &wanted, const char *kind,
                         const std::string &variable) {
        if (!wanted.matches(found)) {
            std::string what = variable.empty() ? "" : " parameter [name=" + variable + "]";
            quit(_wa, kind + what + " equals to \"" + compress(found) +
                          "\", doesn't correspond to pattern \"" + wanted.src() + "\"");
        }
        return found;
    }
    std::string sized(const std::string &found, int low, int high, const std::string &variable) {
        within(static_cast<int>(found.size()), low, high, "Length of token", variable);
        return found;
    }
    template <typename T, typename Read>
    std::vector<T> many(int size, Read read) {
        std::vector<T> values;
        for (int i = 0; i < size; i++) values.push_back(read());
        return values;
    }
};

static InStream inf, ouf, ans;
static TTestlibMode testlibMode = _unknown;
static int __plumbline_case = 0;

// Results

[[noreturn]] inline void __plumbline_exit(int code, const std::string &title,
                                          const std::string &message) {
    std::string where = __plumbline_case ? "(test case " + vtos(__plumbline_case) + ") " : "";
    fflush(stdout);
    fprintf(stderr, "%s%s%s\n", title.c_str(), where.c_str(), message.c_str());
    fflush(stderr);
    std::exit(code);
}

inline void InStream::quit(TResult result, const std::string &message) {
    // Only the answer can be wrong: what is wrong in input or expected output is the test's fault.
    if (mode != _output && result != _fail)
        __plumbline_exit(FAIL_EXIT_CODE, "FAIL ", message + " (" + name + ")");
    if ((result == _ok || result == _points) && !ouf.seekEof())
        __plumbline_exit(PE_EXIT_CODE, "wrong output format ",
                         "Extra information in the output file");
    switch (result) {
        case _ok: __plumbline_exit(OK_EXIT_CODE, "ok ", message);
        case _wa: __plumbline_exit(WA_EXIT_CODE, "wrong answer ", message);
        case _pe: __plumbline_exit(PE_EXIT_CODE, "wrong output format ", message);
        case _dirt: __plumbline_exit(DIRT_EXIT_CODE, "wrong output format ", message);
        case _unexpected_eof: __plumbline_exit(PE_EXIT_CODE, "unexpected eof ", message);
        case _points: __plumbline_exit(POINTS_EXIT_CODE, "points ", message);
        case _fail: __plumbline_exit(FAIL_EXIT_CODE, "FAIL ", message);
        default: break;
    }
    if (result >= _partially) {
        int share = result - _partially;
        std::string title = "partially correct (" + vtos(share) + ") ";
        __plumbline_exit(PC_BASE_EXIT_CODE + share, title, message);
    }
    __plumbline_exit(FAIL_EXIT_CODE, "FAIL ", "unknown result; " + message);
}

[[noreturn]] inline void quit(TResult result, const std::string &message) {
    ouf.quit(result, message);
}
[[noreturn]] inline void quits(TResult result, const std::string &message) {
    ouf.quit(result, message);
}
[[noreturn]] PLUMBLINE_PRINTF(2) inline void quitf(TResult result, const char *fmt, ...) {
    PLUMBLINE_FORMATTED(fmt, text);
    ouf.quit(result, text);
}
PLUMBLINE_PRINTF(3)
inline void quitif(bool condition, TResult result, const char *fmt, ...) {
    PLUMBLINE_FORMATTED(fmt, text);
    if (condition) ouf.quit(result, text);
}

[[noreturn]] inline void quitp(double points, const std::string &message = "") {
    std::string text = format("%.10f", points);
    ouf.quit(_points, message.empty() ? text : text + " " + message);
}
template <typename... Arguments>
[[noreturn]] void quitp(double points, const char *fmt, Arguments... arguments) {
    quitp(points, format(fmt, arguments...));
}
[[noreturn]] inline void quitpi(const std::string &info, const std::string &message = "") {
    ouf.quit(_points, "points_info=" + info + " " + message);
}

inline void ensure_(bool condition, const char *text, int line) {
    if (!condition) quit(_fail, "Condition failed: \"" + std::string(text) + "\" at line " + vtos(line));
}
#define ensure(condition) ensure_((condition), #condition, __LINE__)
PLUMBLINE_PRINTF(2)
inline void ensuref(bool condition, const char *fmt, ...) {
    PLUMBLINE_FORMATTED(fmt, text);
    if (!condition) quit(_fail, text);
}
PLUMBLINE_PRINTF(2)
inline void __testlib_ensuref(bool condition, const char *fmt, ...) {
    PLUMBLINE_FORMATTED(fmt, text);
    if (!condition) quit(_fail, text);
}
[[noreturn]] inline void __testlib_fail(const std::string &message) { quit(_fail, message); }

[[noreturn]] PLUMBLINE_PRINTF(1) inline void expectf(const char *fmt, ...) {
    PLUMBLINE_FORMATTED(fmt, text);
    ouf.quit(_pe, "Expected " + text);
}

inline long long stringToLongLong(InStream &in, const char *text) { return in.toLong(text); }
inline double stringToDouble(InStream &in, const char *text) { return in.toDouble(text); }

inline void setTestCase(int testCase) {
    __plumbline_case = testCase;
    inf.setTestCase(testCase);
    ouf.setTestCase(testCase);
    ans.setTestCase(testCase);
}
inline void unsetTestCase() { __plumbline_case = 0; }

template <typename... Arguments>
void setName(const char *, Arguments...) {}
inline void disableFinalizeGuard() {}
inline void setAppesModeEncoding(const std::string &) {}

inline void registerTestlibCmd(int argc, char *argv[]) {
    testlibMode = _checker;
    if (argc < 4) {
        fprintf(stderr, "FAIL Program must be run with: <input-file> <output-file> <answer-file>\n");
        std::exit(FAIL_EXIT_CODE);
    }
    inf.init(argv[1], _input);
    ans.init(argv[3], _answer);
    ouf.init(argv[2], _output);
}

inline void registerTestlib(int argc, ...) {
    if (argc < 3) __testlib_fail("registerTestlib needs three files");
    va_list files;
    va_start(files, argc);
    inf.init(va_arg(files, char *), _input);
    ouf.init(va_arg(files, char *), _output);
    ans.init(va_arg(files, char *), _answer);
    va_end(files);
    testlibMode = _checker;
}

#endif
