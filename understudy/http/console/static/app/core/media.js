// Whether the screen is narrow, for what styles alone cannot change.
import {useEffect, useState} from "./dom.js";

export const NARROW = "(max-width: 760px)";

export function useMedia(query) {
  const [matches, setMatches] = useState(matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const changed = () => setMatches(list.matches);
    list.addEventListener("change", changed);
    return () => list.removeEventListener("change", changed);
  }, [query]);
  return matches;
}
