// The virtual hosts that the user may see, for forms.
import {usePolled} from "../core/live.js";

export function useVhostNames() {
  const {data} = usePolled("vhosts", 60);
  return Array.isArray(data) && data.length ? data.map((each) => each.name) : ["/"];
}
