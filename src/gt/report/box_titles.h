// What a box of nodes is called, and what it says below its title.
#pragma once

#include <string>

#include "gt/report/box_groups.h"

namespace gt::boxes {

// `like` is what the nodes of the box have in common.
std::string TitleOf(const Box& box, const Likeness& like, const Region& region,
                    PictureGroups groups);

// The group of a collective, or the operators of the box.
std::string DetailOf(const Box& box);

}  // namespace gt::boxes
