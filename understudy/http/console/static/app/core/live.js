// Data that stays fresh: a path asked again every few seconds while somebody looks.
import {createContext, useCallback, useContext, useEffect, useRef, useState} from "./dom.js";
import {get} from "./api.js";

/** What the event stream says: `status`, `overview`, `rates` (a list of samples), `isUp`, `lostAt`; and `who`. */
export const Live = createContext({status: null, overview: null, rates: [], isUp: true, lostAt: null, who: null});

export const useLive = () => useContext(Live);

/** The answer of a path: `{data, error, refresh}`. A null path asks nothing. The last answer stays while the next one is
 * under way; a new path begins anew. */
export function usePolled(where, seconds = 5) {
  const [state, setState] = useState({where, data: null, error: null});
  const {isUp, status} = useLive();
  const role = status?.status;
  const ask = useRef(() => {});

  useEffect(() => {
    if (where === null) return undefined;
    let over = false;
    let timer = 0;
    let request = new AbortController();
    const run = async () => {
      clearTimeout(timer);
      if (document.hidden) return;
      request.abort();
      request = new AbortController();
      const {signal} = request;
      try {
        const data = await get(where, {signal});
        if (over || signal.aborted) return;
        setState({where, data, error: null});
      } catch (error) {
        if (over || signal.aborted) return;
        setState((old) => ({where, data: old.where === where && error.status !== 404 ? old.data : null, error}));
      }
      timer = setTimeout(run, seconds * 1000);
    };
    ask.current = run;
    run();
    document.addEventListener("visibilitychange", run);
    return () => {
      over = true;
      clearTimeout(timer);
      request.abort();
      document.removeEventListener("visibilitychange", run);
    };
  }, [where, seconds, isUp, role]);

  const refresh = useCallback(() => ask.current(), []);
  const isCurrent = state.where === where;
  return {data: isCurrent ? state.data : null, error: isCurrent ? state.error : null, refresh};
}
